/* The devices in sysfs, by every call that scanners of the topology use. */
#define _GNU_SOURCE
#define _FORTIFY_SOURCE 2
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "check.h"

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/weft0"
#define PCI "/sys/devices/pci5746:00/5746:00:00.0"

static const char *const files[] = {
	"numa_node", "vendor", "device", "class", "uevent", "local_cpulist", "local_cpus",
	"max_link_speed", "max_link_width", "current_link_speed", "current_link_width",
};

static const char *real(const char *path)
{
	static char resolved[PATH_MAX];
	CHECK(realpath(path, resolved));
	return resolved;
}

/* What UCX, NCCL, NIXL and Mooncake make of a device: its PCI address and what is near it. */
static void scanners(void)
{
	char text[64], *path;
	unsigned domain, bus, slot, function;
	CHECK(!strcmp(real(DEVICE "/../.."), PCI));
	CHECK(!strcmp(real(DEVICE "/device"), PCI));
	CHECK(!strcmp(real(DEVICE), PCI "/infiniband/weft0"));
	CHECK(!strcmp(real("/sys/class/infiniband_verbs/uverbs_weft0/device"), PCI));
	CHECK(!strcmp(real("/sys/bus/pci/devices/5746:00:00.0"), PCI));
	CHECK(!strcmp(real("/sys/class/pci_bus/5746:00/../../5746:00:00.0"), PCI));
	CHECK(!strcmp(real(DEVICE "/device/subsystem/.."), "/sys/bus"));
	path = canonicalize_file_name(DEVICE "/device");
	CHECK(path && !strcmp(path, PCI));
	CHECK(sscanf(strrchr(path, '/') + 1, "%4x:%2x:%2x.%1x", &domain, &bus, &slot, &function) == 4);
	free(path);
	for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++) {
		char name[PATH_MAX];
		snprintf(name, sizeof(name), DEVICE "/device/%s", files[i]);
		FILE *file = fopen(name, "r");
		CHECK(file && fgets(text, sizeof(text), file) && fclose(file) == 0);
		CHECK(strlen(text) > 1 && access(name, R_OK) == 0 && access(name, W_OK) == -1);
	}
	FILE *file = fopen64(DEVICE "/../../class", "re");
	CHECK(file && fgets(text, sizeof(text), file) && !strcmp(text, "0x020000\n"));
	fclose(file);
}

/* The network interface is the kernel's own, and leads back. */
static void interfaces(void)
{
	char name[PATH_MAX], text[64] = "";
	struct dirent *entry;
	struct stat by_device, by_class;
	DIR *dir = opendir(DEVICE "/device/net");
	CHECK(dir);
	do
		CHECK((entry = readdir(dir)));
	while (entry->d_name[0] == '.');
	CHECK(if_nametoindex(entry->d_name) > 0 && entry->d_type == DT_DIR);
	snprintf(name, sizeof(name), DEVICE "/device/net/%s", entry->d_name);
	CHECK(lstat(name, &by_device) == 0 && S_ISDIR(by_device.st_mode));
	snprintf(name, sizeof(name), "/sys/class/net/%s", entry->d_name);
	CHECK(stat(name, &by_class) == 0 && by_class.st_ino == by_device.st_ino);
	snprintf(name, sizeof(name), "/sys/class/net/%s/device/infiniband/weft0", entry->d_name);
	CHECK(!strcmp(real(name), PCI "/infiniband/weft0"));
	int fd = open(DEVICE "/ports/1/gid_attrs/ndevs/0", O_RDONLY);
	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && close(fd) == 0);
	text[strcspn(text, "\n")] = 0;
	CHECK(!strcmp(text, entry->d_name) && closedir(dir) == 0);
}

static void links(void)
{
	char target[PATH_MAX];
	struct stat st;
	struct statx stx;
	const char *expected = "../../devices/pci5746:00/5746:00:00.0/infiniband/weft0";
	volatile size_t size = sizeof(target);
	CHECK(lstat(DEVICE, &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(lstat(DEVICE "/", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK(stat(DEVICE, &st) == 0 && S_ISDIR(st.st_mode));
	ssize_t len = readlink(DEVICE, target, size);
	CHECK(len == (ssize_t)strlen(expected) && !memcmp(target, expected, len));
	CHECK(readlink(DEVICE, target, 4) == 4);
	CHECK(readlink(DEVICE "/ports", target, size) == -1 && errno == EINVAL);
	CHECK(readlink(CLASS "/mlx5_0", target, size) == -1 && errno == ENOENT);
	CHECK(open(DEVICE, O_RDONLY | O_NOFOLLOW) == -1 && errno == ELOOP);
	CHECK(open(DEVICE "/node_type", O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
	CHECK(statx(AT_FDCWD, DEVICE, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &stx) == 0);
	CHECK(S_ISLNK(stx.stx_mode));
	CHECK(stat("/dev/infiniband/uverbs_weft0", &st) == 0 && major(st.st_rdev) == 231);
	CHECK(stat("/dev/infiniband/..", &st) == 0 && stat("/dev", &st) == 0);
	int link = open(DEVICE, O_PATH | O_NOFOLLOW);
	CHECK(link >= 0 && fstat(link, &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(readlinkat(link, "", target, size) == len && close(link) == 0);
}

/* As hwloc, fts and systemd go: from a descriptor to the next. */
static void descriptors(void)
{
	char text[64];
	struct stat by_path, by_fd;
	struct dirent *entry;
	int root = open("/", O_RDONLY | O_DIRECTORY);
	int class = openat(root, "sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(class >= 0 && fcntl(class, F_GETFD) == FD_CLOEXEC);
	CHECK(fstat(class, &by_fd) == 0 && S_ISDIR(by_fd.st_mode));
	CHECK(stat(CLASS, &by_path) == 0);
	CHECK(by_path.st_ino == by_fd.st_ino && by_path.st_dev == by_fd.st_dev);
	int copy = dup(class);
	int device = openat(copy, "weft0", O_RDONLY);
	CHECK(device >= 0 && fstatat(device, "ports", &by_fd, 0) == 0 && S_ISDIR(by_fd.st_mode));
	CHECK(fstatat(class, "weft0", &by_fd, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(by_fd.st_mode));
	CHECK(fstatat(device, "", &by_fd, AT_EMPTY_PATH) == 0 && S_ISDIR(by_fd.st_mode));
	CHECK(fstatat(device, "../../../../../..", &by_fd, 0) == 0 && stat("/sys", &by_path) == 0);
	CHECK(faccessat(device, "node_type", R_OK, 0) == 0);
	CHECK(faccessat(device, "none", F_OK, 0) == -1 && errno == ENOENT);
	CHECK(readlinkat(device, "device", text, sizeof(text)) == 21);
	int file = openat(device, "device/vendor", O_RDONLY);
	CHECK(file >= 0 && read(file, text, sizeof(text)) == 7 && !memcmp(text, "0x5746\n", 7));
	CHECK(fstat(file, &by_fd) == 0 && stat(DEVICE "/device/vendor", &by_path) == 0);
	CHECK(by_path.st_ino == by_fd.st_ino);
	DIR *dir = fdopendir(device);
	int names = 0, linked = 0;
	CHECK(dir && dirfd(dir) == device);
	while ((entry = readdir(dir))) {
		names++;
		linked += entry->d_type == DT_LNK;
		CHECK(fstatat(dirfd(dir), entry->d_name, &by_fd, AT_SYMLINK_NOFOLLOW) == 0);
	}
	CHECK(names > 8 && linked == 2 && closedir(dir) == 0);
	CHECK(fcntl(device, F_GETFD) == -1);
	dir = opendir(CLASS);
	CHECK(dir && fstatat(dirfd(dir), "weft_iw0/ports/1/state", &by_fd, 0) == 0);
	CHECK(closedir(dir) == 0 && close(copy) == 0 && close(class) == 0 && close(file) == 0);
	/* A number that was the view's and is another file's now. */
	file = openat(root, "dev/null", O_RDONLY);
	CHECK(file >= 0 && fstat(file, &by_fd) == 0 && S_ISCHR(by_fd.st_mode));
	CHECK(close(file) == 0 && close(root) == 0);
}

static void relative_paths(void)
{
	struct stat st;
	CHECK(chdir("/sys/class") == 0);
	CHECK(stat("infiniband/weft0/ports", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK(stat("../class/infiniband", &st) == 0 && access("infiniband/mlx5_0", F_OK) == -1);
	CHECK(chdir("/tmp") == 0);
	CHECK(stat("infiniband/weft0", &st) == -1 && errno == ENOENT);
}

/* A directory of the view can be the current one, for this process and those that it starts. */
static void current_directory(void)
{
	struct stat st, back;
	glob_t found = { 0 };
	char where[4096], few[8];
	const char *resolved = PCI "/infiniband/weft0";
	int before = open(".", O_RDONLY);
	CHECK(before >= 0 && chdir(DEVICE) == 0);
	CHECK(getcwd(where, sizeof(where)) == where && !strcmp(where, resolved));
	CHECK(!getcwd(few, sizeof(few)) && errno == ERANGE);
	char *made = getcwd(NULL, 0), *named = get_current_dir_name();
	CHECK(made && named && !strcmp(made, resolved) && !strcmp(named, resolved));
	free(made);
	free(named);
	CHECK(stat("node_type", &st) == 0 && S_ISREG(st.st_mode) && access("ports/1", F_OK) == 0);
	CHECK(stat("", &st) == -1 && errno == ENOENT);
	CHECK(stat("../weft_iw0", &st) == -1 && errno == ENOENT);
	CHECK(stat("../../../../..", &st) == 0 && stat("/sys", &back) == 0);
	CHECK(st.st_ino == back.st_ino && st.st_dev == back.st_dev);
	CHECK(glob("ports/*/state", 0, NULL, &found) == 0 && found.gl_pathc == 1);
	globfree(&found);
	CHECK(open("new", O_CREAT | O_WRONLY, 0600) == -1 && errno == EACCES);
	CHECK(mkdir("new", 0700) == -1 && access("/new", F_OK) == -1);
	CHECK(system("test \"$(cat node_type)\" = '1: CA'") == 0);
	CHECK(system("cd ports && test -f 1/state && test ! -e node_type") == 0);
	CHECK(chdir("node_type") == -1 && errno == ENOTDIR);
	CHECK(chdir("none") == -1 && errno == ENOENT);
	CHECK(chdir("ports") == 0 && stat("1/state", &st) == 0);
	int here = open(".", O_RDONLY | O_DIRECTORY);
	CHECK(here >= 0 && chdir("../../../../..") == 0 && getcwd(where, sizeof(where)));
	CHECK(!strcmp(where, "/sys/devices") && stat("1/state", &st) == -1);
	CHECK(fchdir(here) == 0 && stat("1/state", &st) == 0);
	CHECK(fchdir(before) == 0 && stat("1/state", &st) == -1);
	CHECK(getcwd(where, sizeof(where)) && strncmp(where, "/sys", 4) && strncmp(where, "/proc", 5));
	CHECK(close(here) == 0 && close(before) == 0);
}

static int listings_of(DIR *dir, const char *name)
{
	struct dirent *entry;
	int seen = 0, other = 0;
	while ((entry = readdir(dir))) {
		seen += !strcmp(entry->d_name, name);
		other += strcmp(entry->d_name, name) != 0;
	}
	CHECK(other > 2);
	return seen;
}

static int count_infiniband;

static int is_infiniband(const struct dirent *entry)
{
	return !strcmp(entry->d_name, "infiniband");
}

static int count(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	(void)st;
	(void)kind;
	count_infiniband += place->level == 1 && !strcmp(path + place->base, "infiniband");
	return place->level == 1 ? FTW_SKIP_SUBTREE : FTW_CONTINUE;
}

/* Directories of the kernel's own list what the view has in them, once. */
static void shared_directories(void)
{
	static const char *const places[][2] = {
		{ "/sys/class", "infiniband" }, { "/sys/class/", "infiniband_verbs" },
		{ "/sys/devices", "pci5746:00" }, { "/dev", "infiniband" },
	};
	struct dirent **list;
	glob_t found = { 0 };
	for (int i = 0; i < 4; i++) {
		DIR *dir = opendir(places[i][0]);
		CHECK(dir && listings_of(dir, places[i][1]) == 1);
		rewinddir(dir);
		CHECK(listings_of(dir, places[i][1]) == 1 && closedir(dir) == 0);
	}
	DIR *dir = fdopendir(open("/sys/class", O_RDONLY | O_DIRECTORY));
	CHECK(dir && listings_of(dir, "infiniband") == 1 && closedir(dir) == 0);
	CHECK(scandir("/sys/class", &list, is_infiniband, alphasort) == 1);
	free(list[0]);
	free(list);
	CHECK(glob("/sys/class/infini*d", 0, NULL, &found) == 0 && found.gl_pathc == 1);
	CHECK(!strcmp(found.gl_pathv[0], CLASS));
	globfree(&found);
	CHECK(nftw("/sys/class", count, 8, FTW_PHYS | FTW_ACTIONRETVAL) == 0 && count_infiniband == 1);
	dir = opendir("/sys/bus");
	struct dirent *entry;
	while (dir && (entry = readdir(dir)))
		CHECK(strcmp(entry->d_name, "infiniband"));
	CHECK(!dir || closedir(dir) == 0);
}

static int visited, visited_links;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	visited++;
	visited_links += kind == FTW_SL;
	CHECK(path[place->base - 1] == '/' && kind != FTW_NS && kind != FTW_DNR);
	return !strcmp(path + place->base, "fw_ver") ? 17 : 0;
}

static void searches(void)
{
	glob_t found = { 0 };
	struct dirent **list;
	CHECK(glob(CLASS "/*/ports/*/state", 0, NULL, &found) == 0 && found.gl_pathc == 2);
	CHECK(!strcmp(found.gl_pathv[0], DEVICE "/ports/1/state"));
	globfree(&found);
	CHECK(glob("/sys/class/n*t", 0, NULL, &found) == 0 && found.gl_pathc == 1);
	globfree(&found);
	CHECK(nftw(PCI "/infiniband_verbs", visit, 8, FTW_PHYS) == 0);
	CHECK(visited == 8 && visited_links == 2);
	CHECK(nftw(PCI "/infiniband/weft0/", visit, 8, FTW_PHYS | FTW_DEPTH) == 17);
	CHECK(nftw(CLASS "/none", visit, 8, 0) == -1 && errno == ENOENT);
	int count = scandir(PCI, &list, NULL, alphasort);
	CHECK(count > 10);
	while (count--)
		free(list[count]);
	free(list);
}

int main(void)
{
	scanners();
	interfaces();
	links();
	descriptors();
	relative_paths();
	current_directory();
	shared_directories();
	searches();
	return 0;
}

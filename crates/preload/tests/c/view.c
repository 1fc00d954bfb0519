/* What programs look for in /sys and /dev, in this process and in a child. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define ROOT "/sys/class/infiniband"

static int is_listed(const char *path, const char *name)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int found = 0;
	CHECK(dir);
	while ((entry = readdir(dir)))
		found += !strcmp(entry->d_name, name);
	rewinddir(dir);
	CHECK(readdir(dir) && closedir(dir) == 0);
	return found;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void directories(void)
{
	struct dirent **list;
	CHECK(is_listed(ROOT, "weft0") == 1 && is_listed(ROOT, "weft_iw0") == 1);
	CHECK(is_listed(ROOT "/weft0", "ports") == 1 && is_listed("/dev/infiniband", "uverbs_weft0"));
	int count = scandir(ROOT, &list, visible, alphasort);
	CHECK(count == 2 && !strcmp(list[0]->d_name, "weft0"));
	CHECK(!strcmp(list[1]->d_name, "weft_iw0"));
	while (count--)
		free(list[count]);
	free(list);
	CHECK(!opendir(ROOT "/mlx5_0") && errno == ENOENT);
	CHECK(!opendir(ROOT "/weft0/node_type") && errno == ENOTDIR);
	CHECK(is_listed("/", "proc") == 1);
}

static void files(void)
{
	char line[64] = "", path[4096];
	FILE *file = fopen(ROOT "/weft0/node_type", "r");
	CHECK(file && fgets(line, sizeof(line), file) && !strcmp(line, "1: CA\n"));
	CHECK(fclose(file) == 0);
	int fd = open(ROOT "/weft0/ports/1/link_layer", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && read(fd, line, sizeof(line)) == 9 && !memcmp(line, "Ethernet\n", 9));
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && close(fd) == 0);
	CHECK(open(ROOT "/weft0/node_type", O_RDWR) == -1 && errno == EACCES);
	CHECK(open(ROOT "/mlx5_0/node_type", O_RDONLY) == -1 && errno == ENOENT);
	CHECK(!realpath(ROOT "/mlx5_0", path) && errno == ENOENT);
	CHECK(readlink(ROOT "/weft0/ports", path, sizeof(path)) == -1 && errno == EINVAL);
}

static void kinds(void)
{
	struct stat st;
	struct statx stx;
	CHECK(stat("/dev/infiniband/uverbs_weft0", &st) == 0 && S_ISCHR(st.st_mode));
	CHECK(access("/dev/infiniband/uverbs_weft0", R_OK | W_OK) == 0);
	CHECK(access("/dev/infiniband/uverbs0", F_OK) == -1 && errno == ENOENT);
	CHECK(lstat(ROOT "/weft0", &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(statx(AT_FDCWD, ROOT "/weft0/fw_ver", 0, STATX_BASIC_STATS, &stx) == 0);
	CHECK(S_ISREG(stx.stx_mode) && access(ROOT "/weft0/fw_ver", W_OK) == -1);
	CHECK(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
}

/* The paths in the device itself are those that programs put together. */
static void paths(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct stat st;
	for (int i = 0; list[i]; i++) {
		CHECK(stat(list[i]->ibdev_path, &st) == 0 && stat(list[i]->dev_path, &st) == 0);
		char node[128];
		snprintf(node, sizeof(node), "/dev/infiniband/%s", list[i]->dev_name);
		CHECK(stat(node, &st) == 0);
	}
	ibv_free_device_list(list);
}

static void children(void)
{
	CHECK(system("test \"$(cat " ROOT "/weft0/node_type)\" = '1: CA'") == 0);
	CHECK(system("test -c /dev/infiniband/uverbs_weft0") == 0);
	CHECK(system("net=" ROOT "/weft0/device/net; test -e $net/$(ls $net)/mtu") == 0);
	CHECK(system("WEFT=off ls " ROOT "/weft0 2>/dev/null") != 0);
}

int main(void)
{
	directories();
	files();
	kinds();
	paths();
	children();
	return 0;
}

/* Functions of the C library that list directories of the view, or the kernel's with its names. */
#define _GNU_SOURCE
#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char *const DIRS[] = {
	"/sys/class/infiniband", "/sys/class/infiniband/weft0",
	"/sys/class/infiniband/weft0/ports/1/gids", "/sys/class", "/dev", "/tmp",
};
enum { COUNT = sizeof(DIRS) / sizeof(*DIRS) };

static void read_both_ways(const char *path)
{
	DIR *one = opendir(path), *other = opendir(path);
	CHECK(one && other);
	for (;;) {
		struct dirent entry, *result = (void *)-1;
		struct dirent *next = readdir(one);
		errno = 0;
		CHECK(readdir_r(other, &entry, &result) == 0 && errno == 0);
		CHECK(result == (next ? &entry : NULL));
		if (!next)
			break;
		CHECK(!strcmp(entry.d_name, next->d_name) && entry.d_type == next->d_type);
	}
	rewinddir(other);
	struct dirent64 entry, *result;
	CHECK(readdir64_r(other, &entry, &result) == 0 && result == &entry);
	CHECK(closedir(one) == 0 && closedir(other) == 0);
}

/* It only says which is greater, which the C library's sort makes do with. */
static int greater(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name) > 0;
}

static void sort(const char *path)
{
	struct dirent **list;
	int count = scandir(path, &list, NULL, greater);
	CHECK(count > 0);
	for (int i = 0; i < count; i++) {
		CHECK(i == 0 || strcmp(list[i - 1]->d_name, list[i]->d_name) < 0);
		if (i > 0)
			free(list[i - 1]);
	}
	free(list[count - 1]);
	free(list);
}

static char dangling[PATH_MAX];
static int seen;

static int visit(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)place;
	if (!strcmp(path, dangling)) {
		CHECK(kind == FTW_SLN && S_ISLNK(status->st_mode));
		seen++;
	}
	return 0;
}

int main(void)
{
	struct stat found;
	errno = 0;
	CHECK(stat(".", &found) == 0 && errno == 0);
	for (int i = 0; i < COUNT; i++) {
		read_both_ways(DIRS[i]);
		sort(DIRS[i]);
	}
	snprintf(dangling, sizeof(dangling), "/dev/shm/weft-listing-%d", (int)getpid());
	if (symlink("/nowhere/at/all", dangling) == 0) {
		int walked = nftw("/dev", visit, 16, 0);
		CHECK(unlink(dangling) == 0 && walked == 0 && seen == 1);
	}
	return 0;
}

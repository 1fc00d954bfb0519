/* A program that gives up root after it has looked at the devices is seen among those of the user
 * that it is then. */
#define _GNU_SOURCE
#include "semantics/pair.h"

#include <dirent.h>

enum { NOBODY = 65534 };

/* Whether an observer finds this process. */
static int is_seen(void)
{
	char wanted[64];
	snprintf(wanted, sizeof wanted, "%d", getpid());
	DIR *dir = opendir("/tmp/weft-65534");
	int found = 0;
	for (struct dirent *one; dir && (one = readdir(dir));)
		found |= !strncmp(one->d_name, wanted, strlen(wanted));
	if (dir)
		closedir(dir);
	return found;
}

int main(int argc, char **argv)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > 0);
	CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
	begin(argc, argv);
	pair();
	receive(b, 1, 64, 8);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(b, 1, IBV_WC_SUCCESS);
	ends(a, 2, IBV_WC_SUCCESS);
	CHECK(is_seen());
	part();
	ibv_free_device_list(list);
	return finish();
}

/* The devices that are visible, by every way to ask: their names are the arguments. */
#include <dirent.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "check.h"

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;
	CHECK(dir || errno == ENOENT);
	for (struct dirent *entry; dir && (entry = readdir(dir));)
		count += !strncmp(entry->d_name, "weft", 4) || !strncmp(entry->d_name, "uverbs", 6);
	if (dir)
		closedir(dir);
	return count;
}

/* An id of rdma-cm is bound to the one device, or cannot be made. */
static void ids(int count, const char *name)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct rdma_cm_id *id, *listener;
	if (count == 0) {
		CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1 && errno == ENODEV);
		CHECK(!rdma_get_devices(NULL) && errno == ENODEV);
		return;
	}
	int found;
	struct ibv_context **list = rdma_get_devices(&found);
	CHECK(list && found == count && !list[count]);
	rdma_free_devices(list);
	CHECK(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&addr) == 0);
	CHECK(rdma_listen(listener, 1) == 0);
	addr.sin_port = rdma_get_src_port(listener);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000) == 0);
	CHECK(id->verbs && !strcmp(id->verbs->device->name, name));
	CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(listener) == 0);
}

int main(int argc, char **argv)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == argc - 1 && !list[count]);
	for (int i = 0; i < count; i++) {
		CHECK(!strcmp(ibv_get_device_name(list[i]), argv[i + 1]));
		CHECK(access(list[i]->ibdev_path, F_OK) == 0 && access(list[i]->dev_path, F_OK) == 0);
	}
	ibv_free_device_list(list);
	CHECK(entries("/sys/class/infiniband") == count);
	CHECK(entries("/sys/class/infiniband_verbs") == count);
	CHECK(entries("/dev/infiniband") == count);
	ids(count, argv[1]);
	return 0;
}

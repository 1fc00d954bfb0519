/* The GID tables of both devices: what verbs answer against the files, entry by entry. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <unistd.h>

#include "check.h"

/* What ibv_devinfo calls, though no header has it. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type);

/* The line in a file of the port, without its end; -1 if there is no such file. */
static int line_of(struct ibv_device *device, const char *name, int index, char *line, int room)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/ports/1/%s/%d", device->ibdev_path, name, index);
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return -1;
	int len = read(fd, line, room - 1);
	CHECK(len > 1 && line[len - 1] == '\n' && close(fd) == 0);
	line[len - 1] = 0;
	return 0;
}

static void text_of(const union ibv_gid *gid, char *text)
{
	for (int i = 0; i < 16; i += 2)
		text += sprintf(text, "%s%02x%02x", i ? ":" : "", gid->raw[i], gid->raw[i + 1]);
}

static void compare(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_port_attr port;
	CHECK(context && ibv_query_port(context, 1, &port) == 0);
	int rnic = device->node_type == IBV_NODE_RNIC;
	struct ibv_gid_entry table[256], row;
	ssize_t used = ibv_query_gid_table(context, table, 256, 0);
	CHECK(used > 0 && used <= port.gid_tbl_len);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		union ibv_gid gid;
		char shown[64], text[64], name[IF_NAMESIZE];
		int type;
		CHECK(ibv_query_gid(context, 1, i, &gid) == 0);
		text_of(&gid, text);
		CHECK(line_of(device, "gids", i, shown, sizeof(shown)) == 0 && !strcmp(shown, text));
		if (i >= used) {
			CHECK(!strcmp(text, "0000:0000:0000:0000:0000:0000:0000:0000"));
			CHECK(ibv_query_gid_ex(context, 1, i, &row, 0) == ENODATA);
			CHECK(line_of(device, "gid_attrs/types", i, shown, sizeof(shown)) == -1);
			CHECK(line_of(device, "gid_attrs/ndevs", i, shown, sizeof(shown)) == -1);
			continue;
		}
		CHECK(ibv_query_gid_ex(context, 1, i, &row, 0) == 0);
		CHECK(!memcmp(&row, &table[i], sizeof(row)) && !memcmp(&row.gid, &gid, sizeof(gid)));
		CHECK(row.gid_index == (unsigned)i && row.port_num == 1);
		CHECK(row.gid_type == (rnic ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2));
		CHECK(ibv_query_gid_type(context, 1, i, &type) == 0 && type == (rnic ? 0 : 1));
		CHECK(line_of(device, "gid_attrs/types", i, shown, sizeof(shown)) == 0);
		CHECK(!strcmp(shown, rnic ? "IB/RoCE v1" : "RoCE v2"));
		CHECK(line_of(device, "gid_attrs/ndevs", i, shown, sizeof(shown)) == 0);
		CHECK(if_indextoname(row.ndev_ifindex, name) && !strcmp(shown, name));
	}
	CHECK(ibv_close_device(context) == 0);
}

int main(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 2);
	compare(list[0]);
	compare(list[1]);
	ibv_free_device_list(list);
	return 0;
}

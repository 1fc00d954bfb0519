/* What a program sees of a device that changes: its table of GIDs, its local identifier and its
 * first partition key, at first and after as many events as the argument says. */
#include "device.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

static struct ibv_context *context;

/* The rows that are used, which the verb and sysfs must agree on. */
static void say_rows(void)
{
	struct ibv_gid_entry table[128];
	ssize_t rows = ibv_query_gid_table(context, table, 128, 0);
	CHECK(rows >= 0);
	printf(" rows");
	for (ssize_t i = 0; i < rows; i++) {
		char path[128], line[64] = "", zero[] = "0000:0000:0000:0000:0000:0000:0000:0000";
		snprintf(path, sizeof(path), "/sys/class/infiniband/weft0/ports/1/gids/%u",
			 table[i].gid_index);
		FILE *file = fopen(path, "r");
		CHECK(file && fgets(line, sizeof(line), file));
		fclose(file);
		CHECK(strncmp(line, zero, sizeof(zero) - 1));
		union ibv_gid gid;
		CHECK(ibv_query_gid(context, 1, table[i].gid_index, &gid) == 0);
		CHECK(!memcmp(&gid, &table[i].gid, sizeof(gid)));
		if (i == 0)
			printf(" from %u", table[i].gid_index);
	}
	printf(" %s", rows ? "used" : "none");
	struct ibv_gid_entry first;
	int error = ibv_query_gid_ex(context, 1, 0, &first, 0);
	printf(", row 0: %s", error ? strerror(error) : "used");
}

static void say_state(const char *when)
{
	struct ibv_port_attr attr;
	uint16_t pkey;
	CHECK(ibv_query_port(context, 1, &attr) == 0);
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0);
	CHECK(ibv_get_pkey_index(context, 1, pkey) == 0);
	printf("%s:", when);
	say_rows();
	printf(", lid %u, pkey %#x\n", attr.lid, ntohs(pkey));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	say_state("at first");
	const char *last = "";
	for (int left = atoi(argv[1]); left > 0; left--) {
		struct ibv_async_event event;
		CHECK(ibv_get_async_event(context, &event) == 0);
		if (strcmp(last, ibv_event_type_str(event.event_type)))
			printf("%s of port %d\n", last = ibv_event_type_str(event.event_type),
			       event.element.port_num);
		ibv_ack_async_event(&event);
	}
	say_state("at last");
	return 0;
}

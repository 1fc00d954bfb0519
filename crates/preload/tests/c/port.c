/* What a program sees of a port that goes down and comes back: events, the verb, the file. */
#include "check.h"

#include <infiniband/verbs.h>

#include <stdio.h>
#include <string.h>

static struct ibv_context *context;

/* The state as the verb and as sysfs have it, which must agree. */
static void say_state(const char *when)
{
	struct ibv_port_attr attr;
	CHECK(ibv_query_port(context, 1, &attr) == 0);
	char line[64] = "";
	FILE *file = fopen("/sys/class/infiniband/weft0/ports/1/state", "r");
	CHECK(file && fgets(line, sizeof(line), file));
	fclose(file);
	line[strcspn(line, "\n")] = 0;
	printf("%s: %s, %s\n", when, ibv_port_state_str(attr.state), line);
}

static void await_event(void)
{
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(context, &event) == 0);
	printf("%s of port %d\n", ibv_event_type_str(event.event_type), event.element.port_num);
	ibv_ack_async_event(&event);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && !strcmp(ibv_get_device_name(list[0]), "weft0"));
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	say_state("at first");
	await_event();
	say_state("then");
	await_event();
	say_state("at last");
	CHECK(ibv_close_device(context) == 0);
	return 0;
}

/*
 * Prints the asynchronous events of a device, and what its port is like with each, until there were
 * as many as are asked for. What it waits on is the descriptor of the device, as programs do that
 * have other things to wait for.
 *
 *     events DEVICE COUNT SECONDS
 *
 * Exit status 0 if they came in time, 1 if not, 2 if the device cannot be opened.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *opened(const char *name) {
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (struct ibv_device **one = list; one && *one; one++)
		if (!strcmp(ibv_get_device_name(*one), name))
			return ibv_open_device(*one);
	return NULL;
}

static void print_port(struct ibv_context *context) {
	struct ibv_port_attr attr;
	if (ibv_query_port(context, 1, &attr)) {
		printf("port: fails\n");
		return;
	}
	union ibv_gid gid = {0};
	__be16 key = 0;
	ibv_query_gid(context, 1, 0, &gid);
	ibv_query_pkey(context, 1, 0, &key);
	int used = gid.global.subnet_prefix || gid.global.interface_id;
	printf("port: %s, lid %d, pkey 0x%x, row 0 %s\n", ibv_port_state_str(attr.state), attr.lid,
	       ntohs(key), used ? "used" : "empty");
}

int main(int count, char **arguments) {
	if (count != 4)
		return 2;
	struct ibv_context *context = opened(arguments[1]);
	if (!context) {
		perror("events: open");
		return 2;
	}
	print_port(context);
	for (int left = atoi(arguments[2]); left > 0; left--) {
		struct pollfd wait = {.fd = context->async_fd, .events = POLLIN};
		struct ibv_async_event event;
		fflush(stdout);
		if (poll(&wait, 1, atoi(arguments[3]) * 1000) != 1 ||
		    ibv_get_async_event(context, &event))
			return 1;
		printf("%s; ", ibv_event_type_str(event.event_type));
		print_port(context);
		ibv_ack_async_event(&event);
	}
	return ibv_close_device(context) ? 1 : 0;
}

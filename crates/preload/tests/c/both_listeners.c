/* A program that listens at one number by rdma-cm and by TCP, as UCX does. */
#include "cm.h"

#include <sys/socket.h>
#include <unistd.h>

static int at_the_port(int type)
{
	int fd = socket(AF_INET, type, 0);
	CHECK(fd >= 0);
	CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
	return fd;
}

static int is_in_use(int type)
{
	int fd = socket(AF_INET, type, 0);
	int refused = bind(fd, (struct sockaddr *)&address, sizeof address) && errno == EADDRINUSE;
	close(fd);
	return refused;
}

int main(void)
{
	struct rdma_conn_param param = { .retry_count = 7 };
	struct rdma_cm_id *listener, *near, *far;
	struct sockaddr_in elsewhere;
	int tcp, caller, other, third;
	char byte = 'x';

	events = rdma_create_event_channel();
	listener = listening(RDMA_PS_TCP);
	CHECK(is_in_use(SOCK_DGRAM));
	/* At another address nobody is in its way. */
	elsewhere = address;
	elsewhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	other = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(other, (struct sockaddr *)&elsewhere, sizeof elsewhere) == 0);
	third = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(third, (struct sockaddr *)&elsewhere, sizeof elsewhere) && errno == EADDRINUSE);
	close(third);
	fprintf(stderr, "elsewhere\n");
	tcp = at_the_port(SOCK_STREAM);
	CHECK(listen(tcp, 1) == 0 && is_in_use(SOCK_STREAM));

	caller = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(caller, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(write(caller, &byte, 1) == 1);
	tcp = accept(tcp, NULL, NULL);
	CHECK(tcp >= 0 && read(tcp, &byte, 1) == 1 && byte == 'x');

	near = routed(RDMA_PS_TCP);
	CHECK(rdma_connect(near, &param) == 0);
	far = asked();
	give_qp(far);
	CHECK(rdma_accept(far, &param) == 0);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	expect(RDMA_CM_EVENT_ESTABLISHED);
	destroy(near);
	destroy(far);
	destroy(listener);
	return 0;
}

/* A child that fails a queue pair that it has inherited leaves that of its parent as it is, also
 * where its memory is lent to the peer. */
#include "pair.h"

#include <sys/wait.h>

enum { LONG = 1 << 20 };

static void send_long(void)
{
	memset(memory, 7, LONG);
	memset(memory + (2 << 20), 0, LONG);
	receive(b, 1, 2 << 20, LONG);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, LONG, 0);
	ends(b, 1, IBV_WC_SUCCESS);
	ends(a, 2, IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, memory + (2 << 20), LONG));
}

int main(int argc, char **argv)
{
	int status;
	begin(argc, argv);
	pair();
	/* The first ones find out that the memory can be read. */
	for (int i = 0; i < 4; i++)
		send_long();
	pid_t child = fork();
	if (child == 0) {
		/* Whether it may is not what this is about. */
		modify(a.qp, IBV_QPS_ERR);
		modify(b.qp, IBV_QPS_ERR);
		modify(a.qp, IBV_QPS_RESET);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 4; i++)
		send_long();
	part();
	return finish();
}

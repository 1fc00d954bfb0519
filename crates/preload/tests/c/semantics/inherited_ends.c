/* A child that has made connections of its own may end what it has inherited: its own descriptors,
 * which may have the same numbers, stay. */
#include "pair.h"

#include <sys/wait.h>

enum { IDLE = 4 };

static void be_child(int argc, char **argv, struct ibv_qp **idle)
{
	begin(argc, argv);
	pair();
	for (int i = 0; i < IDLE; i++)
		CHECK(ibv_destroy_qp(idle[i]) == 0);
	/* What is opened now has the numbers that were closed. */
	struct ibv_qp *more[IDLE];
	for (int i = 0; i < IDLE; i++)
		more[i] = make_qp(a.cq);
	for (int i = 0; i < 100; i++) {
		receive(b, 1, 64, 8);
		post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
		ends(b, 1, IBV_WC_SUCCESS);
		ends(a, 2, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < IDLE; i++)
		CHECK(ibv_destroy_qp(more[i]) == 0);
	part();
	_exit(finish());
}

int main(int argc, char **argv)
{
	struct ibv_qp *idle[IDLE];
	int status;
	begin(argc, argv);
	struct ibv_cq *cq = make_cq(4);
	for (int i = 0; i < IDLE; i++)
		idle[i] = make_qp(cq);
	pid_t child = fork();
	if (child == 0)
		be_child(argc, argv, idle);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < IDLE; i++)
		CHECK(ibv_destroy_qp(idle[i]) == 0);
	CHECK(ibv_destroy_cq(cq) == 0);
	return finish();
}

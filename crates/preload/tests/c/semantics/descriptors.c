/* Descriptors that a program was not given are few, have high numbers, end with exec, are not there
 * in a child, and go with the queue pairs that they are for. */
#define _GNU_SOURCE
#include "pair.h"

#include <dirent.h>
#include <sys/wait.h>

enum { PAIRS = 8 };

/* Counts what is open, and looks at each that is not the program's. */
static int count(void)
{
	DIR *all = opendir("/proc/self/fd");
	CHECK(all);
	int own = 0;
	for (struct dirent *one; (one = readdir(all));) {
		int fd = atoi(one->d_name);
		if (one->d_name[0] == '.' || fd == dirfd(all) || fd <= 2)
			continue;
		CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		if (fd != context->async_fd && fd != context->cmd_fd) {
			CHECK(fd >= 256);
			own++;
		}
	}
	closedir(all);
	return own;
}

/* Goes on with whatever is under way. */
static void poll_often(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	for (int i = 0; i < 1000; i++)
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

/* The one that asks is destroyed before the other hears more of it than that. */
static void ask_and_go(struct ibv_cq *cq)
{
	struct ibv_qp *asks = make_qp(cq), *grants = make_qp(cq), *lower;
	if (asks->qp_num > grants->qp_num)
		lower = grants, grants = asks, asks = lower;
	uint32_t number = asks->qp_num;
	to_init(asks), to_init(grants);
	to_rtr(asks, grants->qp_num);
	to_rts(asks);
	poll_often(cq);
	CHECK(ibv_destroy_qp(asks) == 0);
	to_rtr(grants, number);
	to_rts(grants);
	poll_often(cq);
	CHECK(ibv_destroy_qp(grants) == 0);
}

int main(int argc, char **argv)
{
	/* Whatever was inherited. */
	CHECK(close_range(3, ~0U, 0) == 0);
	begin(argc, argv);
	struct side pairs[PAIRS][2];
	struct ibv_cq *cq = make_cq(64);
	for (int i = 0; i < PAIRS; i++) {
		for (int end = 0; end < 2; end++)
			pairs[i][end] = (struct side){ make_qp(cq), cq };
		join(pairs[i][0].qp, pairs[i][1].qp);
		post(pairs[i][0], IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 8, 64);
		ends(pairs[i][0], i, IBV_WC_SUCCESS);
	}
	/* Two for each end, its socket and the bell of its lane, and a few for all. */
	CHECK(count() <= 4 * PAIRS + 8);
	pid_t child = fork();
	if (child == 0) {
		CHECK(count() <= 2);
		_exit(0);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < PAIRS; i++) {
		post(pairs[i][0], IBV_WR_RDMA_WRITE, i, IBV_SEND_SIGNALED, 0, 8, 64);
		ends(pairs[i][0], i, IBV_WC_SUCCESS);
		CHECK(ibv_destroy_qp(pairs[i][0].qp) == 0 && ibv_destroy_qp(pairs[i][1].qp) == 0);
	}
	for (int i = 0; i < 8 * PAIRS; i++)
		ask_and_go(cq);
	while (count() > PAIRS)
		usleep(1000);
	CHECK(ibv_destroy_cq(cq) == 0);
	return finish();
}

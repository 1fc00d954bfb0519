/* Who destroys its queue pair, or ends, as soon as it has a message leaves its sender a completion
 * for it. */
#include "pair.h"

#include <sys/socket.h>
#include <sys/wait.h>

/* The last that b does is to take a message. */
static void leave(void)
{
	pair();
	receive(b, 1, 64, 8);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(b, 1, IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(b.qp) == 0);
	ends(a, 2, IBV_WC_SUCCESS);
}

static void remain(void)
{
	b.qp = make_qp(b.cq);
	part();
}

static void destroyed(void)
{
	leave();
	remain();
}

/* A request to a queue pair that is no more fails, if nothing else happens either. */
static void left(void)
{
	leave();
	post(a, IBV_WR_SEND, 3, IBV_SEND_SIGNALED, 0, 8, 0);
	struct ibv_wc wc = next(a.cq);
	CHECK(wc.wr_id == 3 && wc.status != IBV_WC_SUCCESS);
	remain();
}

/* What two processes tell each other is the numbers of their queue pairs. */
static void meet(struct side *side, int other, int receives)
{
	uint32_t number;
	*side = (struct side){ .cq = make_cq(16) };
	side->qp = make_qp(side->cq);
	to_init(side->qp);
	if (receives)
		receive(*side, 1, 64, 8);
	CHECK(write(other, &side->qp->qp_num, sizeof(number)) == sizeof(number));
	CHECK(read(other, &number, sizeof(number)) == sizeof(number));
	to_rtr(side->qp, number);
	to_rts(side->qp);
}

static void ended(int argc, char **argv, void (*end)(int))
{
	struct side side;
	int ends_of_it[2], status;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_of_it) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	int other = ends_of_it[child == 0];
	close(ends_of_it[child != 0]);
	begin(argc, argv);
	if (child == 0) {
		meet(&side, other, 1);
		ends(side, 1, IBV_WC_SUCCESS);
		end(0);
	}
	meet(&side, other, 0);
	post(side, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(side, 2, IBV_WC_SUCCESS);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(ibv_destroy_qp(side.qp) == 0 && ibv_destroy_cq(side.cq) == 0);
	CHECK(finish() == 0);
	close(other);
}

/* Of the end of a process its threads see nothing, which may run until it is complete. */
static void look(void)
{
	struct ibv_wc wc;
	for (int i = 0; i < 100; i++)
		if (ibv_poll_cq(a.cq, 1, &wc) != 0 || ibv_poll_cq(b.cq, 1, &wc) != 0)
			_exit(1);
}

static void unseen(int argc, char **argv)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		/* Called after what the library registers later. */
		CHECK(atexit(look) == 0);
		begin(argc, argv);
		pair();
		receive(b, 1, 64, 8);
		post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
		ends(b, 1, IBV_WC_SUCCESS);
		ends(a, 2, IBV_WC_SUCCESS);
		receive(a, 3, 64, 8);
		receive(b, 4, 64, 8);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	unseen(argc, argv);
	for (int i = 0; i < 16; i++)
		ended(argc, argv, i % 2 ? _exit : exit);
	begin(argc, argv);
	for (int i = 0; i < 30; i++)
		destroyed();
	left();
	return finish();
}

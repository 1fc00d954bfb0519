/* A signal handler may end the process at once (signal-safety(7)), whatever the thread that it has
 * interrupted was about. */
#include "pair.h"

#include <malloc.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ENDS = 60, LIMIT_MS = 30000 };

static void end(int number)
{
	(void)number;
	_exit(0);
}

/* Spends most of its time in malloc, with its lock held. */
static void allocate(void)
{
	void *volatile piece = malloc(3000);
	free(piece);
	malloc_trim(0);
}

/* Posts, polls and allocates until the timer goes off, `after_us` from now. */
static void work(int argc, char **argv, int after_us)
{
	struct itimerval timer = { .it_value.tv_usec = after_us };
	struct ibv_wc wcs[16];
	begin(argc, argv);
	pair();
	CHECK(signal(SIGALRM, end) != SIG_ERR);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (int posted = 0, polled = 0;;) {
		if (posted - polled < 8) {
			post(a, IBV_WR_RDMA_WRITE, posted++, IBV_SEND_SIGNALED, 0, 8, 64);
			continue;
		}
		int count = ibv_poll_cq(a.cq, 16, wcs);
		CHECK(count >= 0);
		polled += count;
		CHECK(ibv_poll_cq(b.cq, 16, wcs) == 0);
		allocate();
	}
}

int main(int argc, char **argv)
{
	for (int i = 0; i < ENDS; i++) {
		int status, waited_ms = 0;
		pid_t child = fork(), found;
		CHECK(child >= 0);
		if (child == 0)
			work(argc, argv, 1000 + 97 * i);
		while (!(found = waitpid(child, &status, WNOHANG)) && waited_ms++ < LIMIT_MS)
			usleep(1000);
		if (!found) {
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
		}
		CHECK(found == child && status == 0);
	}
	return 0;
}

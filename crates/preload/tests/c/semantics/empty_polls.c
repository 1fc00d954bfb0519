/* To poll an empty queue does not ask the kernel for the number of this process: that is a system
 * call, as long as all the rest. A filter of seccomp tells of it. */
#include "pair.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define POLLS 5000

static atomic_int asked;

static void on_call(int number, siginfo_t *info, void *context)
{
	(void)number, (void)info, (void)context;
	asked = 1;
}

static struct sock_filter rules[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void *polls(void *unused)
{
	struct sock_fprog filter = { sizeof(rules) / sizeof(*rules), rules };
	struct ibv_wc wc;
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	for (int i = 0; i < POLLS; i++)
		CHECK(ibv_poll_cq(a.cq, 1, &wc) == 0);
	return unused;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_call, .sa_flags = SA_SIGINFO };
	pthread_t thread;
	begin(argc, argv);
	pair();
	CHECK(sigaction(SIGSYS, &action, NULL) == 0);
	/* A connection is made, and nothing is under way any more. */
	receive(b, 1, 0, 8);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 8, 0);
	ends(a, 2, IBV_WC_SUCCESS);
	ends(b, 1, IBV_WC_SUCCESS);
	CHECK(pthread_create(&thread, NULL, polls, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(!asked);
	part();
	return finish();
}

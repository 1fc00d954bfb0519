/* Memory that went away while it was registered (unmapped, without rights, behind the end of its
 * file) fails the request that needs it, as a page fault of the adapter would, and nothing else;
 * the application's handlers of SIGSEGV and SIGBUS get every fault of its own. */
#define _GNU_SOURCE
#include "pair.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { PAGE = 4096, LONGEST = 1 << 20 };

/* Memory of a mapping and a region of its own. */
struct area {
	char *at;
	size_t mapped;
	int file;
	struct ibv_mr *mr;
};

static struct area map(size_t length)
{
	struct area area = { .mapped = (length + 2 * PAGE - 1) / PAGE * PAGE };
	area.file = memfd_create("area", MFD_CLOEXEC);
	CHECK(area.file >= 0 && ftruncate(area.file, area.mapped) == 0);
	area.at = mmap(NULL, area.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, area.file, 0);
	CHECK(area.at != MAP_FAILED);
	memset(area.at, 0x5a, area.mapped);
	area.mr = ibv_reg_mr(pd, area.at, area.mapped, EVERY);
	CHECK(area.mr);
	return area;
}

/* How memory goes away. What is unmapped may be there again at once, when an allocator maps
 * something in the hole; the others last. */
static enum { UNMAPPED, FORBIDDEN, TRUNCATED, WAYS } way;

static void unmap(struct area *area, size_t left)
{
	char *end = area->at + left;
	size_t length = area->mapped - left;
	switch (way) {
	case UNMAPPED:
		CHECK(munmap(end, length) == 0);
		area->mapped = left;
		break;
	case FORBIDDEN:
		CHECK(mprotect(end, length, PROT_NONE) == 0);
		break;
	default:
		CHECK(ftruncate(area->file, left) == 0);
	}
}

/* Takes `length` bytes for the end of the area, of which the last page goes: those bytes go with
 * it, all or but for the beginning. */
static char *lose(struct area *area, size_t length)
{
	char *at = area->at + (length > PAGE ? area->mapped - length : 0);
	unmap(area, length > PAGE ? area->mapped - PAGE : 0);
	return at;
}

static void release(struct area *area)
{
	CHECK(ibv_dereg_mr(area->mr) == 0 && close(area->file) == 0);
	CHECK(!area->mapped || munmap(area->at, area->mapped) == 0);
}

static struct ibv_sge entry(struct area *area, char *at, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)at, length, area->mr->lkey };
}

/* Memory of the sender, or of who asks. */
static void of_the_sender(enum ibv_wr_opcode opcode, uint32_t length)
{
	struct area area = map(length);
	pair();
	receive(b, 1, 0, length);
	struct ibv_sge sge = entry(&area, lose(&area, length), length);
	struct ibv_send_wr wr = request(opcode, 2, IBV_SEND_SIGNALED, &sge, LONGEST), *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 2, IBV_WC_LOC_PROT_ERR);
	CHECK(state(a.qp) == IBV_QPS_ERR);
	/* The peer of an adapter hears nothing of it. */
	if (opcode == IBV_WR_SEND && !adapter)
		ends(b, 1, IBV_WC_WR_FLUSH_ERR);
	part();
	release(&area);
}

/* Memory that may only be written: some CPUs read it all the same, and no kernel for a process. */
static void of_the_sender_for_writing(uint32_t length)
{
	struct area area = map(length);
	pair();
	receive(b, 1, 0, length);
	CHECK(mprotect(area.at, area.mapped, PROT_WRITE) == 0);
	struct ibv_sge sge = entry(&area, area.at, length);
	struct ibv_send_wr wr = request(IBV_WR_SEND, 2, IBV_SEND_SIGNALED, &sge, 0), *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	struct ibv_wc wc = next(a.cq);
	CHECK(wc.wr_id == 2);
	CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_LOC_PROT_ERR);
	part();
	release(&area);
}

/* Memory that the peer names. */
static void of_the_target(enum ibv_wr_opcode opcode, uint32_t length)
{
	struct area area = map(length);
	pair();
	struct ibv_sge sge = place(0, length);
	struct ibv_send_wr wr = request(opcode, 3, IBV_SEND_SIGNALED, &sge, 0), *bad;
	uintptr_t to = (uintptr_t)lose(&area, length);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.remote_addr = to, wr.wr.atomic.rkey = area.mr->rkey;
	else
		wr.wr.rdma.remote_addr = to, wr.wr.rdma.rkey = area.mr->rkey;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 3, IBV_WC_REM_ACCESS_ERR);
	part();
	release(&area);
}

static void of_a_receive(uint32_t length)
{
	struct area area = map(length);
	pair();
	struct ibv_sge sge = entry(&area, lose(&area, length), length);
	struct ibv_recv_wr wr = { .wr_id = 4, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(ibv_post_recv(b.qp, &wr, &bad) == 0);
	post(a, IBV_WR_SEND, 5, IBV_SEND_SIGNALED, 0, length, 0);
	ends(b, 4, IBV_WC_LOC_PROT_ERR);
	ends(a, 5, IBV_WC_REM_OP_ERR);
	part();
	release(&area);
}

/* What the peer reads goes on while other memory of the same region is gone. */
static void beside(void)
{
	struct area area = map(PAGE);
	unmap(&area, PAGE);
	pair();
	struct ibv_sge sge = entry(&area, area.at, PAGE);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 6, IBV_SEND_SIGNALED, &sge, 0), *bad;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	ends(a, 6, IBV_WC_SUCCESS);
	CHECK(!memcmp(area.at, memory, PAGE));
	part();
	release(&area);
}

static sigjmp_buf back;
static volatile int faults, others;
static void *volatile where;

static void on_fault(int number, siginfo_t *info, void *unused)
{
	(void)unused;
	CHECK(number == SIGSEGV && info->si_code == SEGV_MAPERR);
	faults++;
	where = info->si_addr;
	siglongjmp(back, 1);
}

static void on_other(int number)
{
	CHECK(number == SIGSEGV);
	others++;
	siglongjmp(back, 1);
}

static void fault_of_the_application(void)
{
	char *gone = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(gone != MAP_FAILED && munmap(gone, PAGE) == 0);
	where = NULL;
	if (!sigsetjmp(back, 1)) {
		*(volatile char *)(gone + 9) = 1;
		CHECK(0);
	}
}

/* How a child ends that has the signal by default or ignores it. */
static int end_of_child(sighandler_t handler, int sent)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		signal(SIGSEGV, handler);
		if (sent)
			kill(getpid(), SIGSEGV);
		else
			fault_of_the_application();
		_exit(7);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void handlers(void)
{
	fault_of_the_application();
	CHECK(faults == 1 && where && (uintptr_t)where % PAGE == 9);

	struct sigaction old;
	CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == on_fault);
	CHECK(old.sa_flags & SA_SIGINFO && sigismember(&old.sa_mask, SIGUSR1));
	CHECK((void *)signal(SIGSEGV, on_other) == (void *)on_fault);
	fault_of_the_application();
	CHECK(faults == 1 && others == 1);

	struct sigaction once = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_RESETHAND };
	CHECK(sigaction(SIGSEGV, &once, &old) == 0 && old.sa_handler == on_other);
	fault_of_the_application();
	CHECK(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == SIG_DFL && faults == 2);

	CHECK(end_of_child(SIG_DFL, 0) == -SIGSEGV && end_of_child(SIG_DFL, 1) == -SIGSEGV);
	CHECK(end_of_child(SIG_IGN, 0) == -SIGSEGV && end_of_child(SIG_IGN, 1) == 7);
}

/* A thread may block every signal, at any time and by either call. */
static void blocked(void)
{
	sigset_t all, before, now;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
	of_the_sender(IBV_WR_SEND, 64);
	CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	of_a_receive(3000);
	errno = EAGAIN;
	memset(&all, 0xff, sizeof(all));
	CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0 && errno == EAGAIN);
	/* Those by which the C library cancels threads are never blocked. */
	uint64_t known;
	CHECK(syscall(SYS_rt_sigprocmask, 0, NULL, &known, sizeof(known)) == 0);
	CHECK(!(known >> 31 & 3) && known >> 11 & 1);
	CHECK(sigprocmask(SIG_SETMASK, &before, &now) == 0 && sigismember(&now, SIGUSR2));
	CHECK(sigprocmask(99, &before, NULL) == -1 && errno == EINVAL);
	CHECK(pthread_sigmask(99, &before, NULL) == EINVAL);
}

static void each(void)
{
	static const uint32_t lengths[] = { 1, 8, 64, 600, 3000, 3 * PAGE, LONGEST };
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		of_the_sender(IBV_WR_SEND, lengths[i]);
		of_the_sender(IBV_WR_RDMA_WRITE, lengths[i]);
		of_the_sender(IBV_WR_RDMA_READ, lengths[i]);
		of_the_sender_for_writing(lengths[i]);
		of_the_target(IBV_WR_RDMA_WRITE, lengths[i]);
		of_the_target(IBV_WR_RDMA_READ, lengths[i]);
		of_a_receive(lengths[i]);
	}
	of_the_sender(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	of_the_target(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	beside();
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	sigaddset(&action.sa_mask, SIGUSR1);
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	begin(argc, argv);
#ifdef __SANITIZE_ADDRESS__
	/* Its allocator is one that fills holes. */
	way = FORBIDDEN;
#endif
	for (; way < WAYS; way++)
		each();
	way = FORBIDDEN;
	blocked();
	CHECK(faults == 0);
	handlers();
	return finish();
}

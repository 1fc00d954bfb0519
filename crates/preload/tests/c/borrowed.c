/* A child of vfork shares the memory of its parent until it executes: what it does to its signals
 * and its directory is its own all the same. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"

static void fault(int signal)
{
	_exit(100 + signal);
}

static void *handler_of(int signal)
{
	struct sigaction now;
	CHECK(sigaction(signal, NULL, &now) == 0);
	return (void *)now.sa_handler;
}

static int ends(pid_t child)
{
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void signals(void)
{
	static const int all[] = { SIGSEGV, SIGBUS };
	for (int i = 0; i < 2; i++) {
		struct sigaction own = { .sa_handler = fault }, none = { .sa_handler = SIG_DFL };
		CHECK(sigaction(all[i], &own, NULL) == 0);
		pid_t child = vfork();
		if (child == 0) {
			struct sigaction before, after;
			int done = sigaction(all[i], &none, &before) == 0 &&
				sigaction(all[i], NULL, &after) == 0 &&
				before.sa_handler == fault && after.sa_handler == SIG_DFL;
			signal(all[i], SIG_IGN);
			_exit(done ? 7 : 8);
		}
		CHECK(ends(child) == 7 && handler_of(all[i]) == (void *)fault);
	}
	/* The handler is not only told of. */
	pid_t child = fork();
	if (child == 0)
		*(volatile int *)8 = 1;
	CHECK(ends(child) == 100 + SIGSEGV);
}

static int read_type(void)
{
	char text[16] = "";
	int fd = open("weft0/node_type", O_RDONLY);
	if (fd < 0)
		return -1;
	CHECK(read(fd, text, sizeof(text) - 1) > 0 && close(fd) == 0);
	return atoi(text);
}

/* Whoever was started in a directory of the view is still there when a child has left it. */
static int inside(void)
{
	pid_t child = vfork();
	if (child == 0)
		_exit(chdir("/") == 0 ? 7 : 8);
	CHECK(ends(child) == 7 && read_type() == 1);
	return 0;
}

static void directory(void)
{
	char at[64];
	CHECK(chdir("/sys/class/infiniband") == 0 && read_type() == 1);
	pid_t child = vfork();
	if (child == 0)
		_exit(chdir("/") == 0 ? 7 : 8);
	CHECK(ends(child) == 7);
	CHECK(getcwd(at, sizeof(at)) && !strcmp(at, "/sys/class/infiniband") && read_type() == 1);
	CHECK(chdir("/") == 0 && getcwd(at, sizeof(at)) && !strcmp(at, "/"));
	for (int i = 0; i < 2; i++) {
		child = vfork();
		if (child == 0) {
			if (chdir("/sys/class/infiniband") == 0)
				execlp("grep", "grep", "-q", "CA", "weft0/node_type", NULL);
			_exit(8);
		}
		CHECK(ends(child) == 0);
		CHECK(getcwd(at, sizeof(at)) && !strcmp(at, "/"));
	}
	child = vfork();
	if (child == 0) {
		if (chdir("/sys/class/infiniband") == 0)
			execl("/proc/self/exe", "borrowed", "inside", NULL);
		_exit(8);
	}
	CHECK(ends(child) == 0);
	/* No number that stood for the child's directory is taken for the parent's. */
	struct stat found;
	int mine = fcntl(0, F_DUPFD, 512);
	CHECK(mine >= 512 && chdir("/tmp") == 0 && fstat(mine, &found) == 0);
}

int main(int argc, char **argv)
{
	static char memory[4096];
	if (argc > 1 && !strcmp(argv[1], "inside"))
		return inside();
	struct ibv_context *context = ibv_open_device(device_named("weft0"));
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(ibv_reg_mr(pd, memory, sizeof(memory), 0));
	signals();
	directory();
	return 0;
}

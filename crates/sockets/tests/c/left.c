/* A handler of a signal leaves a connect that waits, and the thread goes on: it accepts a caller.
 * `left call PORT` is that. */
#include "check.h"

#include <setjmp.h>

static sigjmp_buf before;

static void leave(int number)
{
	(void)number;
	siglongjmp(before, 1);
}

static int call(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(connect(fd, (void *)&to, sizeof to) == 0 && write(fd, "c", 1) == 1);
	CHECK(read(fd, &byte, 1) == 1 && byte == 's');
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return call(atoi(argv[2]));
	struct sockaddr_in full = { .sin_family = AF_INET }, at;
	struct itimerval soon = { .it_value = { .tv_usec = 200000 } };
	int listener = socket(AF_INET, SOCK_STREAM, 0), caller = socket(AF_INET, SOCK_STREAM, 0);
	int other = listen_on_loopback(&at), status;
	char port[8], byte;
	full.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind_port(listener, &full, sizeof full);
	CHECK(listen(listener, 0) == 0);
	for (int i = 0; i < 2; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		int done = syscall(SYS_connect, fd, &full, sizeof full);
		CHECK(fd >= 0 && (done == 0 || errno == EINPROGRESS));
	}
	signal(SIGALRM, leave);
	if (sigsetjmp(before, 1) == 0) {
		CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		connect(caller, (void *)&full, sizeof full);
		CHECK(!"nobody accepts");
	}
	pid_t child = fork();
	CHECK(child >= 0 && snprintf(port, sizeof port, "%d", ntohs(at.sin_port)) > 0);
	if (child == 0)
		execl(argv[0], argv[0], "call", port, NULL);
	int accepted = accept(other, NULL, NULL);
	CHECK(accepted >= 0 && read(accepted, &byte, 1) == 1 && byte == 'c');
	CHECK(write(accepted, "s", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}

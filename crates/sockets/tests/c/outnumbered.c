/* Callers wait by pairs for who has fewer descriptors left than they are, and behind a caller by
 * TCP: all of them are accepted. */
#include "check.h"

#include <sys/resource.h>

enum { CALLERS = 60, LEFT = 20 };

static void call(const struct sockaddr_in *at, int told)
{
	int fds[CALLERS];
	char byte;
	for (int i = 0; i < CALLERS; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		/* The first one goes past the library. */
		CHECK(fds[i] >= 0);
		CHECK((i ? connect(fds[i], (const void *)at, sizeof *at)
			 : syscall(SYS_connect, fds[i], at, sizeof *at)) == 0);
	}
	CHECK(write(told, "c", 1) == 1);
	for (int i = 0; i < CALLERS; i++)
		CHECK(read(fds[i], &byte, 1) == 1 && byte == 's');
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rlimit limit;
	int told[2], status, listener = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind_port(listener, &at, sizeof at);
	CHECK(listen(listener, 2 * CALLERS) == 0 && pipe(told) == 0);
	pid_t child = fork();
	if (child == 0) {
		call(&at, told[1]);
		_exit(0);
	}
	CHECK(child > 0 && read(told[0], &byte, 1) == 1);
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = told[1] + LEFT;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int i = 0; i < CALLERS; i++) {
		int accepted = accept(listener, NULL, NULL);
		CHECK(accepted >= 0 && write(accepted, "s", 1) == 1 && close(accepted) == 0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}

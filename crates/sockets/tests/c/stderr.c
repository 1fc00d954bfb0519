/* The library reports each connection on standard error (WEFT_SOCKETS_VERBOSE), but nothing to a
 * connection of the application that has this number: one that it put there, as services of inetd
 * do, or that was made where the number was free. `stderr FILE` begins without standard error's
 * pipe, and ends with FILE in its place. `stderr inherited` is run by it with a socket there, whose
 * name says what is to be found. */
#include "check.h"

static struct sockaddr_in at;
static int listener;

/* The other end of a connection made now; the nearer end is *fd. */
static int connected(int *fd)
{
	*fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(*fd, (void *)&at, sizeof at) == 0);
	int far = accept(listener, NULL, NULL);
	CHECK(far >= 0);
	return far;
}

/* Nothing but what is written now comes out of `far`. */
static void carries_only(int near, int far)
{
	char octets[8];
	CHECK(write(near, "mine", 4) == 4 && shutdown(near, SHUT_WR) == 0);
	CHECK(recv(far, octets, sizeof octets, MSG_WAITALL) == 4 && !memcmp(octets, "mine", 4));
	close(far);
}

/* Runs `stderr inherited` with `fd` for standard error. */
static void run_with(char *self, int fd)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
		execl(self, self, "inherited", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	int near, far, ends[2];
	char octets[512];
	CHECK(argc == 2);
	listener = listen_on_loopback(&at);
	if (!strcmp(argv[1], "inherited")) {
		connected(&near);
		return 0;
	}
	/* The socket that the process was started with gets what is said, as the journal's does. */
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	run_with(argv[0], ends[1]);
	close(ends[1]);
	CHECK(recv(ends[0], octets, 6, MSG_WAITALL) == 6 && !memcmp(octets, "weft: ", 6));
	/* Connections that are there from the start get nothing: by the kernel's TCP, and ours. */
	struct sockaddr_in to = at;
	near = socket(AF_INET, SOCK_STREAM, 0);
	int plain = socket(AF_INET, SOCK_STREAM, 0);
	to.sin_port = 0;
	socklen_t len = sizeof to;
	CHECK(bind(plain, (void *)&to, len) == 0 && syscall(SYS_listen, plain, 1) == 0);
	CHECK(getsockname(plain, (void *)&to, &len) == 0);
	CHECK(syscall(SYS_connect, near, &to, len) == 0);
	far = syscall(SYS_accept, plain, NULL, NULL);
	run_with(argv[0], near);
	carries_only(near, far);
	close(near);
	far = connected(&near);
	run_with(argv[0], near);
	carries_only(near, far);
	/* One takes the free number. */
	close(STDERR_FILENO);
	far = connected(&near);
	CHECK(near == STDERR_FILENO);
	/* What is made now would be reported to it. */
	connected(&ends[0]);
	carries_only(near, far);
	/* A daemon has its log there. */
	int log = open(argv[1], O_CREAT | O_RDWR, 0600);
	CHECK(dup2(log, STDERR_FILENO) == STDERR_FILENO);
	connected(&ends[0]);
	CHECK(pread(log, octets, 6, 0) == 6 && !memcmp(octets, "weft: ", 6));
	return 0;
}

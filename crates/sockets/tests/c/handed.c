/* A listener that other processes accept from: `handed serve fork`, `handed serve nobody`, `handed
 * serve exec` and `handed serve orphan` say their port on stderr and serve CALLS connections each;
 * `handed call PORT` makes them. Children of a fork accept while their parent lives; so do those
 * that have given root's rights up, if this user has them; a program that was executed with the
 * listener does; and one whose parent has ended, which as `handed serve mixed` serves one more.
 * `handed once PORT` makes a single connection. */
#include "check.h"

#define CALLS 4
#define NOBODY 65534

static void serve(int listener)
{
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	char b[64];
	ssize_t n;
	int fd = accept(listener, (void *)&peer, &len);
	CHECK(fd >= 0 && len == sizeof peer && peer.sin_family == AF_INET);
	while ((n = read(fd, b, sizeof b)) > 0)
		CHECK(write(fd, b, n) == n);
	CHECK(n == 0);
	/* What was written last arrives although this process ends at once. */
	CHECK(write(fd, "bye", 3) == 3);
	close(fd);
}

static void serve_all(int listener, int calls)
{
	for (int i = 0; i < calls; i++)
		serve(listener);
}

static int serve_by(const char *how, char *self)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof at;
	int status, listener = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind_port(listener, &at, len);
	CHECK(listen(listener, 16) == 0);
	int is_mixed = !strcmp(how, "mixed");
	if (!strcmp(how, "orphan") || is_mixed) {
		/* Goes on in the background, as daemons do. */
		int gone[2];
		char octet;
		CHECK(pipe(gone) == 0);
		if (fork() != 0)
			exit(0);
		close(gone[1]);
		CHECK(read(gone[0], &octet, 1) == 0);
		fprintf(stderr, "port %d\n", ntohs(at.sin_port));
		serve_all(listener, is_mixed ? CALLS + 1 : CALLS);
		return 0;
	}
	fprintf(stderr, "port %d\n", ntohs(at.sin_port));
	int executes = !strcmp(how, "exec");
	for (int i = 0; i < (executes ? 1 : CALLS); i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0 && !executes) {
			if (!strcmp(how, "nobody") && geteuid() == 0)
				CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
			serve(listener);
			exit(0);
		} else if (child == 0) {
			char number[16];
			snprintf(number, sizeof number, "%d", listener);
			execl(self, self, "inherit", number, NULL);
			exit(1);
		}
	}
	while (wait(&status) > 0)
		CHECK(status == 0);
	return 0;
}

static int call(int port, int calls)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	char b[8];
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < calls; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(fd, (void *)&to, sizeof to) == 0);
		CHECK(write(fd, "hello", 5) == 5 && shutdown(fd, SHUT_WR) == 0);
		CHECK(recv(fd, b, 8, MSG_WAITALL) == 8 && !memcmp(b, "hellobye", 8));
		CHECK(read(fd, b, 1) == 0);
		close(fd);
	}
	return 0;
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	if (!strcmp(argv[1], "serve"))
		return serve_by(argv[2], argv[0]);
	if (!strcmp(argv[1], "call"))
		return call(atoi(argv[2]), CALLS);
	if (!strcmp(argv[1], "once"))
		return call(atoi(argv[2]), 1);
	serve_all(atoi(argv[2]), CALLS);
	return 0;
}

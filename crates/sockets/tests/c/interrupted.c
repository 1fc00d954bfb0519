/* A signal handler may end the process at once (signal-safety(7)), whatever the interrupted thread
 * was doing: a socket call or malloc. */
#include "check.h"

#include <malloc.h>

enum { ENDS = 60, LIMIT_MS = 60000 };

static uint8_t octets[5000];

static void end(int number)
{
	(void)number;
	_exit(0);
}

/* Sends and allocates until the timer goes off, `after_us` from when it is connected. */
static void send_all(const struct sockaddr_in *to, int after_us)
{
	struct itimerval timer = { .it_value.tv_usec = after_us };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(fd, (const void *)to, sizeof *to) == 0);
	CHECK(signal(SIGALRM, end) != SIG_ERR);
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	for (;;) {
		void *volatile piece = malloc(3000);
		CHECK(send(fd, octets, sizeof octets, 0) > 0);
		free(piece);
		malloc_trim(0);
	}
}

int main(void)
{
	struct sockaddr_in at;
	int listener = listen_on_loopback(&at);
	for (int i = 0; i < ENDS; i++) {
		int fd, status, waited_ms = 0;
		pid_t child = fork(), found;
		CHECK(child >= 0);
		if (child == 0)
			send_all(&at, 10000 + 397 * i);
		fd = accept(listener, NULL, NULL);
		CHECK(fd >= 0);
		while (read(fd, octets, sizeof octets) > 0)
			;
		close(fd);
		while (!(found = waitpid(child, &status, WNOHANG)) && waited_ms++ < LIMIT_MS)
			usleep(1000);
		if (!found)
			kill(child, SIGKILL);
		CHECK(found == child && status == 0);
	}
	return 0;
}

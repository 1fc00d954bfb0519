/* Two users of this host, each of whom its own user namespace shows as the one that stands for all
 * unmapped users: `unmapped serve UID` says its port on stderr and sends back what comes, and
 * `unmapped call PORT UID` sends it. */
#define _GNU_SOURCE
#include "check.h"
#include <sched.h>

enum { OCTETS = 1000 };

static void become_unmapped(uid_t user)
{
	CHECK(setgid(user) == 0 && setuid(user) == 0);
	CHECK(unshare(CLONE_NEWUSER) == 0);
}

static int serve(void)
{
	static uint8_t octets[OCTETS];
	struct sockaddr_in at;
	int listener = listen_on_loopback(&at);
	fprintf(stderr, "port %d\n", ntohs(at.sin_port));
	int fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0 && recv(fd, octets, OCTETS, MSG_WAITALL) == OCTETS);
	check_octets(octets, OCTETS, 0);
	CHECK(write(fd, octets, OCTETS) == OCTETS);
	return close(fd);
}

static int call(int port)
{
	static uint8_t octets[OCTETS];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fill(octets, OCTETS, 0);
	CHECK(connect(fd, (void *)&to, sizeof to) == 0);
	CHECK(write(fd, octets, OCTETS) == OCTETS);
	memset(octets, 0, OCTETS);
	CHECK(recv(fd, octets, OCTETS, MSG_WAITALL) == OCTETS);
	check_octets(octets, OCTETS, 0);
	return close(fd);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 3);
	int serves = !strcmp(argv[1], "serve");
	become_unmapped(atoi(argv[serves ? 2 : 3]));
	return serves ? serve() : call(atoi(argv[2]));
}

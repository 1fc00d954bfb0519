/* A connect to the unspecified address reaches this machine, whose address the peer has then:
 * `unspecified wait` by a socket that blocks, `unspecified poll` by one that does not. */
#include "check.h"

int main(int argc, char **argv)
{
	struct sockaddr_in at, peer;
	socklen_t len = sizeof peer;
	int listener = listen_on_loopback(&at);
	CHECK(argc == 2);
	int polls = !strcmp(argv[1], "poll");
	int fd = socket(AF_INET, SOCK_STREAM | (polls ? SOCK_NONBLOCK : 0), 0);
	at.sin_addr.s_addr = htonl(INADDR_ANY);
	int done = connect(fd, (void *)&at, sizeof at);
	CHECK(done == 0 || (polls && errno == EINPROGRESS));
	struct pollfd writable = { fd, POLLOUT, 0 };
	CHECK(poll(&writable, 1, -1) == 1);
	int other = accept(listener, NULL, NULL);
	char octet = 'x';
	CHECK(other >= 0 && write(fd, &octet, 1) == 1 && read(other, &octet, 1) == 1);
	CHECK(getpeername(fd, (void *)&peer, &len) == 0 && peer.sin_port == at.sin_port);
	CHECK(peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	return 0;
}

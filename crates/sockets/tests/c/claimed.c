/* Another user of this host claims a connection: `claimed serve` greets whom it accepts. `claimed
 * call PORT UID` connects by TCP alone, from a port that a process of user UID has named in a Hello
 * of its own over iWARP before. `claimed crowd PORT UID` connects after that user has sent a Hello
 * for each of many ports, to `claimed serve few`, which has few descriptors. */
#include "check.h"
#include <sys/resource.h>

enum { DESCRIPTORS = 128, CROWD = 64 };

/* A Hello of SDP for the connection from `port`, both ends at 127.0.0.1, in a Request of MPA. */
static size_t request(unsigned char *into, uint16_t port)
{
	static const unsigned char header[] = {
		0, 0, 0, 64, 0, 0, 0, 92, 0, 0, 0, 0, 0, 0, 0, 0,
		0x22, 0x48, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0,
	};
	static const unsigned char here[] = { 127, 0, 0, 1 };
	unsigned char *hello = into + 20;
	memset(into, 0, 20 + 92);
	memcpy(into, "MPA ID Req Frame\x40\x01\x00\x5c", 20);
	memcpy(hello, header, sizeof header);
	memcpy(hello + 28, &port, sizeof port);
	memcpy(hello + 44, here, sizeof here);
	memcpy(hello + 60, here, sizeof here);
	return 20 + 92;
}

/* Asks the listener for the connection of another user; gives whether it was granted. */
static int claim(struct sockaddr_in at, uint16_t port, uid_t user, int *stream)
{
	unsigned char bytes[128];
	size_t len = request(bytes, port);
	CHECK(setgid(user) == 0 && setuid(user) == 0);
	*stream = socket(AF_INET, SOCK_STREAM, 0);
	at.sin_port ^= htons(IWARP);
	CHECK(connect(*stream, (void *)&at, sizeof at) == 0);
	CHECK(write(*stream, bytes, len) == (ssize_t)len);
	CHECK(recv(*stream, bytes, 20, MSG_WAITALL) == 20);
	CHECK(!memcmp(bytes, "MPA ID Rep Frame", 16));
	return !(bytes[16] & 0x20);
}

/* Asks for the connections from `count` ports, from `first` on; gives how many are granted. */
static int claim_all(struct sockaddr_in at, uint16_t first, int count, uid_t user)
{
	int granted = 0, stream;
	for (int i = 0; i < count; i++)
		granted += claim(at, htons(ntohs(first) + i), user, &stream);
	return granted;
}

static int call(uint16_t port, int count, uid_t user)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) }, own = to;
	struct timeval limit = { .tv_sec = 20 };
	socklen_t len = sizeof own;
	int granted[2], held[2], status, number, fd = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	to.sin_addr.s_addr = own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	own.sin_port = 0;
	CHECK(bind(fd, (void *)&own, sizeof own) == 0);
	CHECK(getsockname(fd, (void *)&own, &len) == 0);
	CHECK(pipe(granted) == 0 && pipe(held) == 0);
	pid_t claimer = fork();
	if (claimer == 0) {
		close(fd);
		close(held[1]);
		number = claim_all(to, own.sin_port, count, user);
		CHECK(write(granted[1], &number, sizeof number) == sizeof number);
		/* Until the caller is done. */
		CHECK(read(held[0], &byte, 1) == 0);
		return 0;
	}
	close(granted[1]);
	CHECK(read(granted[0], &number, sizeof number) == sizeof number);
	printf("granted %d\n", number);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
	CHECK(connect(fd, (void *)&to, sizeof to) == 0);
	CHECK(read(fd, &byte, 1) == 1 && byte == 's');
	CHECK(write(fd, "c", 1) == 1 && read(fd, &byte, 1) == 0);
	close(held[1]);
	CHECK(waitpid(claimer, &status, 0) == claimer && status == 0);
	return 0;
}

static int serve(int has_few)
{
	struct rlimit few = { DESCRIPTORS, DESCRIPTORS };
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof at;
	int fd, listener = socket(AF_INET, SOCK_STREAM, 0);
	char byte;
	CHECK(!has_few || setrlimit(RLIMIT_NOFILE, &few) == 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	bind_port(listener, &at, len);
	CHECK(listen(listener, 16) == 0);
	fprintf(stderr, "port %d\n", ntohs(at.sin_port));
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0 && write(fd, "s", 1) == 1);
	CHECK(read(fd, &byte, 1) == 1 && byte == 'c');
	return 0;
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[1], "serve"))
		return serve(argc > 2);
	CHECK(argc == 4);
	return call(atoi(argv[2]), strcmp(argv[1], "crowd") ? 1 : CROWD, atoi(argv[3]));
}

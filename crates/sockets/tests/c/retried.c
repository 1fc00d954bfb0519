/* A socket whose connect was refused connects again, once somebody listens there. */
#include "check.h"

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	char byte;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int listener = socket(AF_INET, SOCK_STREAM, 0), caller = socket(AF_INET, SOCK_STREAM, 0);
	bind_port(listener, &at, sizeof at);
	for (int i = 0; i < 2; i++)
		FAILS(connect(caller, (void *)&at, sizeof at), ECONNREFUSED);
	CHECK(listen(listener, 1) == 0);
	CHECK(connect(caller, (void *)&at, sizeof at) == 0);
	int accepted = accept(listener, NULL, NULL);
	CHECK(accepted >= 0);
	CHECK(write(caller, "c", 1) == 1 && read(accepted, &byte, 1) == 1 && byte == 'c');
	CHECK(write(accepted, "s", 1) == 1 && read(caller, &byte, 1) == 1 && byte == 's');
	return 0;
}

/* Who may bind to a port that another id has, in this process or another: as the kernel's rdma-cm
 * answers. It is the wildcard, on either side, that makes the difference between the errors. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const char *const wildcard = "0.0.0.0", *const here = "127.0.0.1";
static const char *const beside = "127.0.0.2";
static const char *const wildcard_6 = "::", *const here_6 = "::1";

/* Binds a new id; NULL with `errno` set if that is refused. */
static struct rdma_cm_id *bound(struct rdma_event_channel *channel, const char *at, uint16_t port,
	int shared)
{
	struct rdma_cm_id *id;
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = port };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = port };
	int is_v6 = inet_pton(AF_INET6, at, &v6.sin6_addr);
	CHECK(is_v6 || inet_pton(AF_INET, at, &v4.sin_addr));
	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &shared, 4) == 0);
	if (rdma_bind_addr(id, is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4) == 0)
		return id;
	int code = errno;
	CHECK(rdma_destroy_id(id) == 0);
	errno = code;
	return NULL;
}

/* Binds to `at` with what answer: an errno, or 0. */
static void claim(const char *at, uint16_t port, int shared, int answer)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel);
	struct rdma_cm_id *id = bound(channel, at, port, shared);
	int code = id ? 0 : errno;
	if (code != answer)
		fprintf(stderr, "%s: %s instead of %s\n", at, strerror(code), strerror(answer));
	CHECK(code == answer);
	CHECK(!id || rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

static void claim_elsewhere(const char *at, uint16_t port, int answer)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		claim(at, port, 0, answer);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* What who asks for `at` hears while `held` is bound, and then listens. */
static void meets(struct rdma_event_channel *channel, const char *held, const char *at, int answer)
{
	struct rdma_cm_id *holder = bound(channel, held, 0, 0);
	CHECK(holder);
	uint16_t port = rdma_get_src_port(holder);
	CHECK(port);
	claim(at, port, 0, answer);
	claim_elsewhere(at, port, answer);
	CHECK(rdma_listen(holder, 1) == 0);
	claim(at, port, 0, answer);
	claim_elsewhere(at, port, answer);
	/* One that is alone in sharing shares nothing. */
	claim(at, port, 1, answer);
	CHECK(rdma_destroy_id(holder) == 0);
}

static void both_share(struct rdma_event_channel *channel, const char *held, const char *at)
{
	struct rdma_cm_id *holder = bound(channel, held, 0, 1);
	CHECK(holder);
	claim(at, rdma_get_src_port(holder), 1, 0);
	CHECK(rdma_destroy_id(holder) == 0);
}

static int set(struct rdma_cm_id *id, int option, int value)
{
	return rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof value);
}

/* An address may be shared later, until its id listens, but not be taken back. */
static void shared_later(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *holder = bound(channel, here, 0, 0);
	CHECK(holder);
	uint16_t port = rdma_get_src_port(holder);
	claim(here, port, 1, EADDRINUSE);
	CHECK(set(holder, RDMA_OPTION_ID_REUSEADDR, 1) == 0);
	claim(here, port, 1, 0);
	CHECK(set(holder, RDMA_OPTION_ID_REUSEADDR, 0) == -1 && errno == EINVAL);
	CHECK(rdma_listen(holder, 1) == 0);
	CHECK(set(holder, RDMA_OPTION_ID_REUSEADDR, 1) == -1 && errno == EINVAL);
	CHECK(rdma_destroy_id(holder) == 0);
}

/* Nor need an id that is bound exclude the other family before it listens. */
static void alone_later(struct rdma_event_channel *channel)
{
	struct rdma_cm_id *holder = bound(channel, wildcard_6, 0, 0);
	CHECK(holder);
	uint16_t port = rdma_get_src_port(holder);
	claim(here, port, 0, EADDRNOTAVAIL);
	CHECK(set(holder, RDMA_OPTION_ID_AFONLY, 1) == 0 && rdma_get_src_port(holder) == port);
	claim(here, port, 0, 0);
	CHECK(set(holder, RDMA_OPTION_ID_AFONLY, 0) == 0);
	claim(here, port, 0, EADDRNOTAVAIL);
	CHECK(rdma_listen(holder, 1) == 0);
	CHECK(set(holder, RDMA_OPTION_ID_AFONLY, 1) == -1 && errno == EINVAL);
	CHECK(rdma_destroy_id(holder) == 0);
}

int main(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel);
	meets(channel, wildcard, here, EADDRNOTAVAIL);
	meets(channel, here, wildcard, EADDRNOTAVAIL);
	meets(channel, wildcard, wildcard, EADDRNOTAVAIL);
	meets(channel, here, here, EADDRINUSE);
	meets(channel, here, beside, 0);
	claim("127.0.0.3", 0, 0, 0);
	struct rdma_cm_id *v6 = bound(channel, here_6, 0, 0);
	if (v6) {
		CHECK(rdma_destroy_id(v6) == 0);
		meets(channel, wildcard_6, here_6, EADDRNOTAVAIL);
		meets(channel, wildcard_6, here, EADDRNOTAVAIL);
		meets(channel, here_6, wildcard_6, EADDRNOTAVAIL);
		meets(channel, here_6, here_6, EADDRINUSE);
		alone_later(channel);
		claim("ff02::1", 0, 0, EADDRNOTAVAIL);
	}
	both_share(channel, wildcard, here);
	both_share(channel, here, wildcard);
	both_share(channel, here, here);
	shared_later(channel);
	/* No host has the address of a group, or of all hosts of a network. */
	claim("239.1.2.3", 0, 0, EADDRNOTAVAIL);
	claim("255.255.255.255", 0, 0, EADDRNOTAVAIL);
	claim("127.255.255.255", 0, 0, EADDRNOTAVAIL);
	rdma_destroy_event_channel(channel);
	return 0;
}

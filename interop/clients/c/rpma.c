/* librpma: memory of a peer written, flushed and read, messages and an atomic write, all checked.
 * rpma server|client ADDRESS PORT */
#include <librpma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20, TURNS = 16, WORD = 8 };

#define CHECK(what)                                                                       \
	do {                                                                              \
		if (!(what)) {                                                            \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);        \
			exit(1);                                                          \
		}                                                                         \
	} while (0)

static char *memory;
static struct rpma_mr_local *mr;
static struct rpma_conn *conn;

static unsigned char octet(int turn, size_t place)
{
	return place * 7 + turn * 31 + (place >> 8);
}

static struct rpma_peer *begin(const char *address, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *context;
	struct rpma_peer *peer;
	CHECK(!rpma_utils_get_ibv_context(address, type, &context));
	CHECK(!rpma_peer_new(context, &peer));
	memory = aligned_alloc(4096, 2 * SIZE);
	CHECK(memory);
	memset(memory, 0, 2 * SIZE);
	CHECK(!rpma_mr_reg(peer, memory, 2 * SIZE,
			   RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST |
				   RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST |
				   RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV |
				   RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
			   &mr));
	return peer;
}

static void event(enum rpma_conn_event wanted)
{
	enum rpma_conn_event seen;
	CHECK(!rpma_conn_next_event(conn, &seen));
	CHECK(seen == wanted);
}

/* The next completion is of this request. One event may stand for several completions, or for one
 * that is taken already. */
static void done(uintptr_t name)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;
	int end;
	CHECK(!rpma_conn_get_cq(conn, &cq));
	while ((end = rpma_cq_get_wc(cq, 1, &wc, NULL)) == RPMA_E_NO_COMPLETION)
		CHECK(!rpma_cq_wait(cq));
	CHECK(!end && wc.status == IBV_WC_SUCCESS && wc.wr_id == name);
}

/* The server's answer to a message: that its memory is as the client made it. */
static void serve(struct rpma_peer *peer, const char *address, const char *port)
{
	struct rpma_ep *ep;
	struct rpma_conn_req *req;
	char descriptor[64];
	size_t size;
	CHECK(!rpma_mr_get_descriptor_size(mr, &size) && size <= sizeof(descriptor));
	CHECK(!rpma_mr_get_descriptor(mr, descriptor));
	struct rpma_conn_private_data data = { .ptr = descriptor, .len = size };
	CHECK(!rpma_ep_listen(peer, address, port, &ep));
	CHECK(!rpma_ep_next_conn_req(ep, NULL, &req));
	CHECK(!rpma_conn_req_recv(req, mr, SIZE, WORD, (void *)1));
	CHECK(!rpma_conn_req_connect(&req, &data, &conn));
	event(RPMA_CONN_ESTABLISHED);
	for (int turn = 0; turn < TURNS; turn++) {
		done(1);
		for (size_t i = WORD; i < SIZE; i++)
			CHECK((unsigned char)memory[i] == octet(turn, i));
		CHECK(memory[0] == turn + 1 && memory[SIZE] == turn + 1);
		CHECK(!rpma_recv(conn, mr, SIZE, WORD, (void *)1));
		CHECK(!rpma_send(conn, mr, SIZE + WORD, WORD, RPMA_F_COMPLETION_ALWAYS, (void *)2));
		done(2);
	}
	event(RPMA_CONN_CLOSED);
	CHECK(!rpma_conn_disconnect(conn) && !rpma_conn_delete(&conn));
	CHECK(!rpma_ep_shutdown(&ep));
}

/* A turn: most of the peer's memory is written, its first word atomically, and all is read back. */
static void turn(int number, struct rpma_mr_remote *remote)
{
	for (size_t i = 0; i < SIZE; i++)
		memory[i] = octet(number, i);
	char word[WORD] = { number + 1 };
	CHECK(!rpma_write(conn, remote, WORD, mr, WORD, SIZE - WORD, RPMA_F_COMPLETION_ON_ERROR,
			  NULL));
	CHECK(!rpma_flush(conn, remote, 0, SIZE, RPMA_FLUSH_TYPE_VISIBILITY,
			  RPMA_F_COMPLETION_ALWAYS, (void *)3));
	done(3);
	CHECK(!rpma_atomic_write(conn, remote, 0, word, RPMA_F_COMPLETION_ALWAYS, (void *)4));
	done(4);
	CHECK(!rpma_read(conn, mr, SIZE, remote, 0, SIZE, RPMA_F_COMPLETION_ALWAYS, (void *)5));
	done(5);
	CHECK(!memcmp(memory + SIZE, word, WORD));
	CHECK(!memcmp(memory + SIZE + WORD, memory + WORD, SIZE - WORD));
	CHECK(!rpma_recv(conn, mr, SIZE, WORD, (void *)6));
	memory[0] = number + 1;
	CHECK(!rpma_send(conn, mr, 0, WORD, RPMA_F_COMPLETION_ON_ERROR, NULL));
	done(6);
}

static void ask(struct rpma_peer *peer, const char *address, const char *port)
{
	struct rpma_conn_req *req;
	struct rpma_conn_private_data data;
	struct rpma_mr_remote *remote;
	CHECK(!rpma_conn_req_new(peer, address, port, NULL, &req));
	CHECK(!rpma_conn_req_connect(&req, NULL, &conn));
	event(RPMA_CONN_ESTABLISHED);
	CHECK(!rpma_conn_get_private_data(conn, &data) && data.ptr);
	size_t size;
	CHECK(!rpma_mr_get_descriptor_size(mr, &size) && size <= data.len);
	CHECK(!rpma_mr_remote_from_descriptor(data.ptr, size, &remote));
	for (int number = 0; number < TURNS; number++)
		turn(number, remote);
	CHECK(!rpma_mr_remote_delete(&remote));
	CHECK(!rpma_conn_disconnect(conn));
	event(RPMA_CONN_CLOSED);
	CHECK(!rpma_conn_delete(&conn));
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	int serves = !strcmp(argv[1], "server");
	struct rpma_peer *peer = begin(argv[2], serves ? RPMA_UTIL_IBV_CONTEXT_LOCAL :
							 RPMA_UTIL_IBV_CONTEXT_REMOTE);
	if (serves)
		serve(peer, argv[2], argv[3]);
	else
		ask(peer, argv[2], argv[3]);
	CHECK(!rpma_mr_dereg(&mr) && !rpma_peer_delete(&peer));
	free(memory);
	puts("all right");
	return 0;
}

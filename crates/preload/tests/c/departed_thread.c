/* What a process sends by shared memory arrives also after its first thread has ended, by which the
 * receiver would otherwise find its memory. */
#include "peer.h"

#include <pthread.h>

enum { BYTES = 65536, SHORT = 64, BEFORE = 8, COUNT = 24 };

static pthread_t first;
static struct rdma_cm_id *connection;
static pthread_barrier_t half;

static uint32_t length_of(int number)
{
	return number % 3 ? BYTES : SHORT;
}

static void server(struct rdma_cm_id *id)
{
	static char memory[DEPTH][BYTES];
	struct ibv_mr *mr = rdma_reg_msgs(id, memory, sizeof(memory));
	CHECK(mr);
	for (int i = 0; i < DEPTH; i++)
		CHECK(rdma_post_recv(id, NULL, memory[i], BYTES, mr) == 0);
	CHECK(rdma_accept(id, NULL) == 0);
	for (int i = 0; i < COUNT; i++) {
		struct ibv_wc wc = next_of(id->recv_cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == length_of(i));
		CHECK(memory[i][0] == i && memory[i][wc.byte_len - 1] == i);
	}
	CHECK(rdma_dereg_mr(mr) == 0);
}

static void *works(void *none)
{
	static char memory[BYTES];
	struct ibv_mr *mr = rdma_reg_msgs(connection, memory, BYTES);
	CHECK(mr);
	for (int i = 0; i < COUNT; i++) {
		if (i == BEFORE) {
			pthread_barrier_wait(&half);
			CHECK(pthread_join(first, NULL) == 0);
		}
		memset(memory, i, BYTES);
		CHECK(rdma_post_send(connection, NULL, memory, length_of(i), mr, 0) == 0);
		CHECK(next_of(connection->send_cq).status == IBV_WC_SUCCESS);
	}
	CHECK(rdma_dereg_mr(mr) == 0);
	CHECK(rdma_disconnect(connection) == 0);
	exit(0);
}

static void client(struct rdma_cm_id *id)
{
	pthread_t thread;
	first = pthread_self();
	connection = id;
	CHECK(pthread_barrier_init(&half, NULL, 2) == 0);
	CHECK(pthread_create(&thread, NULL, works, NULL) == 0);
	pthread_barrier_wait(&half);
	pthread_exit(NULL);
}

int main(void)
{
	return meet(server, client);
}

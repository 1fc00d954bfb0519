// Collectives of libgloo between processes, over its transport for ibverbs, what comes out checked.
// allreduce DEVICE GID-INDEX DIRECTORY
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

namespace {

constexpr int ranks = 4;
constexpr int turns = 3;

void check(bool good, const char *what)
{
	if (!good)
		throw std::runtime_error(what);
}

// A number below 2^12, so that sums of it are exact.
float number(int rank, int turn, size_t place)
{
	return (place * 7 + rank * 131 + turn * 31) % 4093;
}

// An algorithm may return with a send on its way, and this gloo refuses to take it down before that
// is complete. The sends of a pair complete in turn, so it is when a later one is.
void settle(const std::shared_ptr<gloo::Context> &context)
{
	int slot = context->nextSlot(), there[ranks], back[ranks];
	std::unique_ptr<gloo::transport::Buffer> out[ranks], in[ranks];
	for (int rank = 0; rank < ranks; rank++) {
		if (rank == context->rank)
			continue;
		out[rank] = context->getPair(rank)->createSendBuffer(slot, &there[rank], sizeof(int));
		in[rank] = context->getPair(rank)->createRecvBuffer(slot, &back[rank], sizeof(int));
		out[rank]->send();
	}
	for (int rank = 0; rank < ranks; rank++) {
		if (rank == context->rank)
			continue;
		in[rank]->waitRecv();
		out[rank]->waitSend();
	}
}

template <typename Algorithm>
void sums(const std::shared_ptr<gloo::Context> &context, size_t count)
{
	std::vector<float> data(count);
	Algorithm algorithm(context, std::vector<float *>{ data.data() }, count);
	for (int turn = 0; turn < turns; turn++) {
		for (size_t i = 0; i < count; i++)
			data[i] = number(context->rank, turn, i);
		algorithm.run();
		for (size_t i = 0; i < count; i++) {
			float sum = 0;
			for (int rank = 0; rank < ranks; rank++)
				sum += number(rank, turn, i);
			check(data[i] == sum, "a sum is wrong");
		}
	}
	settle(context);
}

void broadcasts(const std::shared_ptr<gloo::Context> &context, size_t count)
{
	for (int root = 0; root < ranks; root++) {
		std::vector<float> data(count);
		for (size_t i = 0; i < count; i++)
			data[i] = number(context->rank, 0, i);
		gloo::BroadcastOneToAll<float> algorithm(context, { data.data() }, count, root);
		algorithm.run();
		for (size_t i = 0; i < count; i++)
			check(data[i] == number(root, 0, i), "what was broadcast is wrong");
		settle(context);
	}
}

void work(int rank, const gloo::transport::ibverbs::attr &attr, const std::string &directory)
{
	auto device = gloo::transport::ibverbs::CreateDevice(attr);
	gloo::rendezvous::FileStore store(directory);
	// For good: this gloo posts a receive for a pair after it has told what the last one brought, and
	// knows no way to wait for that before the pair is taken down.
	auto context = *new auto(std::make_shared<gloo::rendezvous::Context>(rank, ranks));
	context->connectFullMesh(store, device);
	for (size_t count : { 1, 1000, 1 << 20 }) {
		sums<gloo::AllreduceRing<float>>(context, count);
		sums<gloo::AllreduceRingChunked<float>>(context, count);
		sums<gloo::AllreduceHalvingDoubling<float>>(context, count);
		broadcasts(context, count);
	}
}

int child(int rank, char **argv)
{
	try {
		work(rank, { argv[1], 1, std::atoi(argv[2]) }, argv[3]);
		return 0;
	} catch (const std::exception &error) {
		fprintf(stderr, "rank %d: %s\n", rank, error.what());
		return 1;
	}
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	for (int rank = 0; rank < ranks; rank++) {
		pid_t pid = fork();
		if (pid == 0)
			return child(rank, argv);
		if (pid < 0)
			return 1;
	}
	int good = 0, status;
	while (wait(&status) > 0) {
		good += status == 0;
		if (status)
			fprintf(stderr, "a rank ended with status %#x\n", status);
	}
	if (good != ranks)
		return 1;
	puts("all right");
	return 0;
}

/* A program that closes every descriptor that it does not know, those of its connections as well:
 * they end, what was posted is flushed, no thread goes round, and what has one of the numbers
 * then is left alone. */
#define _GNU_SOURCE
#include "pair.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

enum { MOST = 64, HIGH = 256 };

static int numbers[MOST], count;

/* Those that the program was not given. */
static void list_high_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	CHECK(directory);
	for (struct dirent *entry; (entry = readdir(directory));)
		if (atoi(entry->d_name) >= HIGH && count < MOST)
			numbers[count++] = atoi(entry->d_name);
	closedir(directory);
	CHECK(count > 0);
}

static double processor_time(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	pair();
	receive(b, 1, 4096, 64);
	post(a, IBV_WR_SEND, 2, IBV_SEND_SIGNALED, 0, 64, 0);
	ends(b, 1, IBV_WC_SUCCESS);
	ends(a, 2, IBV_WC_SUCCESS);
	receive(a, 3, 4096, 64);
	receive(b, 4, 8192, 64);

	list_high_descriptors();
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
	ends(a, 3, IBV_WC_WR_FLUSH_ERR);
	ends(b, 4, IBV_WC_WR_FLUSH_ERR);
	post(a, IBV_WR_SEND, 5, IBV_SEND_SIGNALED, 0, 64, 0);
	ends(a, 5, IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_open_device(device_named(argv[1])));

	int file = memfd_create("own", 0);
	CHECK(file >= 0);
	for (int i = 0; i < count; i++)
		CHECK(dup2(file, numbers[i]) == numbers[i]);
	double began = processor_time();
	usleep(500000);
	CHECK(processor_time() - began < 0.2);
	CHECK(modify(a.qp, IBV_QPS_RESET) == 0);
	part();
	struct stat found;
	CHECK(fstat(file, &found) == 0 && found.st_size == 0);
	for (int i = 0; i < count; i++)
		CHECK(fcntl(numbers[i], F_GETFD) >= 0);
	return finish();
}

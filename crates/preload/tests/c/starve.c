/* An allocator that refuses each so many-th piece once it is told to, preloaded with libweft.so. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *piece, size_t size);
void *__libc_memalign(size_t align, size_t size);

static atomic_uint every, asked, refused;

/* Refuses every n-th piece from now on; none with 0. Gives how many were refused before. */
unsigned starve(unsigned n)
{
	asked = 0;
	every = n;
	return atomic_exchange(&refused, 0);
}

static int refuses(void)
{
	unsigned n = every;
	if (!n || (asked++ + 1) % n)
		return 0;
	refused++;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t size)
{
	return refuses() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	return refuses() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *piece, size_t size)
{
	return refuses() ? NULL : __libc_realloc(piece, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return refuses() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **piece, size_t align, size_t size)
{
	*piece = aligned_alloc(align, size);
	return *piece ? 0 : ENOMEM;
}

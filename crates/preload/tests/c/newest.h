/* What rdma-core's newest headers declare and Debian's do not: facts of libibverbs' version nodes
 * 1.15 to 1.17 and of librdmacm's 1.4. Include first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

#include "check.h"

enum {
	REG_MR_MASK_IOVA = 1 << 0, REG_MR_MASK_ADDR = 1 << 1, REG_MR_MASK_FD = 1 << 2,
	REG_MR_MASK_FD_OFFSET = 1 << 3, REG_MR_MASK_DMAH = 1 << 4, REG_MR_MASK_BUF = 1 << 5,
	PARENT_DOMAIN_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2,
	CM_EVENT_ADDRINFO_RESOLVED = 16, CM_EVENT_ADDRINFO_ERROR = 17, CM_EVENT_USER = 18,
	CM_EVENT_INTERNAL = 19,
	ADDRINFO_SA = 0x10, ADDRINFO_DNS = 0x20,
};

struct ibv_buf;

/* Node 1.15; 1.17 puts a buffer behind it. */
struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
};

struct mr_init_attr_buf {
	struct mr_init_attr attr;
	struct ibv_buf *buf;
};

static inline void *newest(const char *library, const char *name, const char *node)
{
	void *handle = dlopen(library, RTLD_NOW), *found = dlvsym(handle, name, node);
	CHECK(handle && found);
	return found;
}

/* A pointer `name` to the verb ibv_NAME. */
#define VERB(result, name, node, ...) \
	result (*name)(__VA_ARGS__) = newest("libibverbs.so.1", "ibv_" #name, "IBVERBS_" node)

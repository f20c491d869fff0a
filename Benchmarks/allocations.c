// allocations: preloaded into a client (LD_PRELOAD), counts what the process allocates, on all threads; a growth by realloc
// is one as well. Clients look up `allocations_so_far`.
#include <stddef.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static long long count;

long long allocations_so_far(void) { return __atomic_load_n(&count, __ATOMIC_RELAXED); }

static void add(void) { __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED); }

void *malloc(size_t size) { return add(), __libc_malloc(size); }
void *calloc(size_t number, size_t size) { return add(), __libc_calloc(number, size); }
void *realloc(void *old, size_t size) { return add(), __libc_realloc(old, size); }
void *memalign(size_t alignment, size_t size) { return add(), __libc_memalign(alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return add(), __libc_memalign(alignment, size); }

int posix_memalign(void **result, size_t alignment, size_t size) {
    add();
    *result = __libc_memalign(alignment, size);
    return *result ? 0 : 12;  // ENOMEM
}

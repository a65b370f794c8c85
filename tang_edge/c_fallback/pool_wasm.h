/* A pool of threads for loops under WebAssembly: the caller takes part; workers spin briefly for the next loop, then sleep.
 *
 * The host starts one worker a thread, each with an instance of this module over the same memory, and has it call
 * tang_pool_join with a stack of its own. There is one pool a memory. Without shared memory there are no threads.
 */
#ifdef __wasm__
typedef void (*tang_kernel)(void *const *b, const long *p, long begin, long end);

typedef struct tang_pool {
  int32_t turn;    /* number of the loop that runs; workers wait for it to change */
  int32_t busy;    /* workers that have not finished the loop */
  int32_t next;    /* first iteration that nobody has taken */
  int32_t quit, failed;
  tang_kernel fn;
  void *const *b;
  const long *p;
  long total, chunk;
  int32_t threads;
} tang_pool;

/* Multiply-adds below which a loop runs on the caller alone. */
#define TANG_ALONE 500000L

#ifdef __wasm_atomics__

static tang_pool tang_only_pool;

static void tang_work(tang_pool *w) {
  for (;;) {
    const int64_t at = (uint32_t)__atomic_fetch_add(&w->next, (int32_t)w->chunk, __ATOMIC_RELAXED);
    if (at >= w->total) return;
    w->fn(w->b, w->p, (long)at, at + w->chunk < w->total ? (long)(at + w->chunk) : w->total);
  }
}

/* Returns when *at is no longer `old`: it spins first, since the next loop is usually near. */
static void tang_wait(int32_t *at, int32_t old) {
  for (int spin = 0; spin < 4000; ++spin)
    if (__atomic_load_n(at, __ATOMIC_ACQUIRE) != old) return;
  while (__atomic_load_n(at, __ATOMIC_ACQUIRE) == old) __builtin_wasm_memory_atomic_wait32(at, old, -1);
}

static void tang_wake(int32_t *at) { __builtin_wasm_memory_atomic_notify(at, UINT32_MAX); }

TANG_EXPORT void tang_pool_join(void *pool) {
  tang_pool *w = (tang_pool *)pool;
  for (int32_t seen = 0;; ++seen) {
    tang_wait(&w->turn, seen);
    if (__atomic_load_n(&w->quit, __ATOMIC_ACQUIRE)) return;
    tang_work(w);
    if (__atomic_sub_fetch(&w->busy, 1, __ATOMIC_ACQ_REL) == 0) tang_wake(&w->busy);
  }
}

/* For the host of a worker that trapped: the caller of the loop, which waits for it, traps too. */
TANG_EXPORT void tang_pool_fail(void *pool) {
  tang_pool *w = (tang_pool *)pool;
  __atomic_store_n(&w->failed, 1, __ATOMIC_RELEASE);
  __atomic_store_n(&w->busy, 0, __ATOMIC_RELEASE);
  tang_wake(&w->busy);
}

static void tang_for(tang_pool *w, tang_kernel fn, void *const *b, const long *p, long total) {
  if (w == 0 || w->threads < 2 || total < 2) {
    if (total > 0) fn(b, p, 0, total);
    return;
  }
  w->fn = fn, w->b = b, w->p = p, w->total = total;
  w->chunk = total / (w->threads * 4L) > 0 ? total / (w->threads * 4L) : 1;
  __atomic_store_n(&w->next, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&w->busy, w->threads - 1, __ATOMIC_RELEASE);
  __atomic_fetch_add(&w->turn, 1, __ATOMIC_RELEASE);
  tang_wake(&w->turn);
  tang_work(w);
  for (int32_t left; (left = __atomic_load_n(&w->busy, __ATOMIC_ACQUIRE)) > 0;) tang_wait(&w->busy, left);
  if (__atomic_load_n(&w->failed, __ATOMIC_ACQUIRE)) __builtin_trap();
}

TANG_EXPORT void *tang_pool_new(int32_t threads) {
  tang_only_pool = (tang_pool){.threads = threads};
  return threads > 1 ? &tang_only_pool : 0;
}

TANG_EXPORT void tang_pool_free(void *pool) {
  tang_pool *w = (tang_pool *)pool;
  if (w == 0) return;
  __atomic_store_n(&w->quit, 1, __ATOMIC_RELEASE);
  __atomic_fetch_add(&w->turn, 1, __ATOMIC_RELEASE);
  tang_wake(&w->turn);
}

#else

static void tang_for(tang_pool *w, tang_kernel fn, void *const *b, const long *p, long total) {
  (void)w;
  if (total > 0) fn(b, p, 0, total);
}

TANG_EXPORT void *tang_pool_new(int32_t threads) { return (void)threads, (void *)0; }
TANG_EXPORT void tang_pool_free(void *pool) { (void)pool; }

#endif
#endif

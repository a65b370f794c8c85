/* A pool of threads for loops: the caller takes part; workers spin briefly for the next loop, then sleep. */
#ifndef __wasm__ /* pool_wasm.h */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef void (*tang_kernel)(void *const *b, const long *p, long begin, long end);

typedef struct tang_pool {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  atomic_uint turn;      /* number of the loop that runs; workers wait for it to change */
  atomic_int busy;       /* workers that have not finished the loop */
  atomic_long next;      /* first iteration that nobody has taken */
  atomic_int quit;
  tang_kernel fn;
  void *const *b;
  const long *p;
  long total, chunk;
  int threads;
  pthread_t *ids;
} tang_pool;

#if defined(__x86_64__) || defined(__i386__)
#define TANG_PAUSE() __builtin_ia32_pause()
#else
#define TANG_PAUSE() ((void)0)
#endif

static void tang_work(tang_pool *w) {
  for (;;) {
    const long at = atomic_fetch_add_explicit(&w->next, w->chunk, memory_order_relaxed);
    if (at >= w->total) return;
    w->fn(w->b, w->p, at, at + w->chunk < w->total ? at + w->chunk : w->total);
  }
}

static void *tang_worker(void *arg) {
  tang_pool *w = (tang_pool *)arg;
  unsigned seen = 0;
  for (;;) {
    for (int spin = 0; spin < 4000 && atomic_load_explicit(&w->turn, memory_order_acquire) == seen; ++spin) TANG_PAUSE();
    if (atomic_load_explicit(&w->turn, memory_order_acquire) == seen) {
      pthread_mutex_lock(&w->lock);
      while (atomic_load_explicit(&w->turn, memory_order_acquire) == seen) pthread_cond_wait(&w->wake, &w->lock);
      pthread_mutex_unlock(&w->lock);
    }
    seen = atomic_load_explicit(&w->turn, memory_order_acquire);
    if (atomic_load_explicit(&w->quit, memory_order_acquire)) return 0;
    tang_work(w);
    atomic_fetch_sub_explicit(&w->busy, 1, memory_order_release);
  }
}

/* Multiply-adds (about 20 microseconds of them) below which a loop runs on the caller alone: a sleeping thread takes as long to
   wake. */
#define TANG_ALONE 500000L

static void tang_for(tang_pool *w, tang_kernel fn, void *const *b, const long *p, long total) {
  if (w == 0 || w->threads < 2 || total < 2) {
    if (total > 0) fn(b, p, 0, total);
    return;
  }
  w->fn = fn, w->b = b, w->p = p, w->total = total;
  w->chunk = total / (w->threads * 4L) > 0 ? total / (w->threads * 4L) : 1;
  atomic_store_explicit(&w->next, 0, memory_order_relaxed);
  atomic_store_explicit(&w->busy, w->threads - 1, memory_order_relaxed);
  pthread_mutex_lock(&w->lock);
  atomic_fetch_add_explicit(&w->turn, 1, memory_order_release);
  pthread_cond_broadcast(&w->wake);
  pthread_mutex_unlock(&w->lock);
  tang_work(w);
  for (int spin = 0; atomic_load_explicit(&w->busy, memory_order_acquire) > 0; ++spin)
    if (spin < 20000) TANG_PAUSE(); else sched_yield();
}

static void tang_pool_stop(tang_pool *w) {
  pthread_mutex_lock(&w->lock);
  atomic_store_explicit(&w->quit, 1, memory_order_release);
  atomic_fetch_add_explicit(&w->turn, 1, memory_order_release);
  pthread_cond_broadcast(&w->wake);
  pthread_mutex_unlock(&w->lock);
  for (int k = 0; k + 1 < w->threads; ++k) pthread_join(w->ids[k], 0);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->wake);
  free(w->ids);
  free(w);
}

TANG_EXPORT void *tang_pool_new(int32_t threads) {
  tang_pool *w = (tang_pool *)calloc(1, sizeof *w);
  if (w == 0) return 0;
  w->threads = 1;
  w->ids = (pthread_t *)calloc((size_t)(threads > 1 ? threads : 1), sizeof *w->ids);
  if (w->ids == 0) return free(w), (void *)0;
  pthread_mutex_init(&w->lock, 0);
  pthread_cond_init(&w->wake, 0);
  for (int k = 0; k + 1 < threads; ++k) {
    if (pthread_create(&w->ids[k], 0, tang_worker, w) != 0) break;
    w->threads = k + 2;
  }
  return w;
}

TANG_EXPORT void tang_pool_free(void *pool) {
  if (pool != 0) tang_pool_stop((tang_pool *)pool);
}
#endif

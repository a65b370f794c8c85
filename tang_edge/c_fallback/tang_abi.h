/* The interface of a compiled tang bundle, version 1. Frozen: fields are never moved or removed.
 *
 * No global state: the caller supplies the arena, the packed region and the dimensions. Both sides compute the
 * same offsets: slots of the plan in order, each aligned to 256 bytes. Inputs and outputs are arena buffers.
 */
#ifndef TANG_ABI_H
#define TANG_ABI_H

#include <stdint.h>

#define TANG_ABI_VERSION 1

#if defined(_WIN32)
#define TANG_EXPORT __declspec(dllexport)
#else
#define TANG_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tang_call {
  const int64_t *dims;          /* one value per dimension, in the order of the plan */
  uint8_t *arena;               /* at least sizes[0] bytes, 64-aligned */
  uint8_t *packed;              /* at least sizes[1] bytes, 64-aligned; written in phase 0, read in phase 1 */
  const void *const *constants; /* one pointer per constant of the plan, canonical layout; read in phase 0 only */
  void *pool;                   /* from tang_pool_new, or NULL: one thread */
  const uint8_t *choice;        /* alternate of each step, by preorder index, or NULL: the first everywhere */
  int32_t phase;                /* 0: prologue, 1: steps */
  int32_t first, last;          /* preorder range [first, last) of steps; last < 0: to the end */
} tang_call;

/* The version of this interface that the library was made for. */
TANG_EXPORT int32_t tang_abi(void);

/* Bytes of the arena (sizes[0]) and of the packed region (sizes[1]). 0: done, 1: a dimension is out of range. */
TANG_EXPORT int32_t tang_sizes(const int64_t *dims, int64_t *sizes);

/* Run a phase. 0: done, else an error code; nothing outside the arena and the packed region is written. */
TANG_EXPORT int32_t tang_run(const tang_call *call);

/* A pool of threads (the caller's included), NULL where there can be none. One tang_run at a time may use it. */
TANG_EXPORT void *tang_pool_new(int32_t threads);
TANG_EXPORT void tang_pool_free(void *pool);

#ifdef __cplusplus
}
#endif

#endif

// SPDX-License-Identifier: Apache-2.0
// Another library in LD_PRELOAD: wraps malloc and related functions, as allocators and leak finders do. It
// looks up the real functions with dlsym at its first call, which comes before any constructor has run.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void* (*next_malloc)(size_t);
static void (*next_free)(void*);
static void* (*next_calloc)(size_t, size_t);
static void* (*next_realloc)(void*, size_t);
static void* (*next_memalign)(size_t, size_t);

// While this thread looks up the real functions (`asking`), dlsym may allocate memory. Such memory comes from
// `early`.
static _Thread_local int asking;
static char early[1 << 16];
static size_t early_used;

static void* take_early(size_t size) {
  size_t begin = (early_used + 15) & ~(size_t)15;
  if (begin + size > sizeof early) return NULL;
  early_used = begin + size;
  return early + begin;
}
static int is_early(void* block) { return (char*)block >= early && (char*)block < early + sizeof early; }

static int ready(void) {
  if (next_memalign != NULL) return 1;
  if (asking) return 0;
  asking = 1;
  *(void**)&next_malloc = dlsym(RTLD_NEXT, "malloc");
  *(void**)&next_free = dlsym(RTLD_NEXT, "free");
  *(void**)&next_calloc = dlsym(RTLD_NEXT, "calloc");
  *(void**)&next_realloc = dlsym(RTLD_NEXT, "realloc");
  *(void**)&next_memalign = dlsym(RTLD_NEXT, "memalign");
  asking = 0;
  return next_memalign != NULL;
}

void* malloc(size_t size) { return ready() ? next_malloc(size) : take_early(size); }
void free(void* block) {
  if (!is_early(block) && ready()) next_free(block);
}
void* calloc(size_t count, size_t size) {
  return ready() ? next_calloc(count, size) : take_early(count * size);
}
void* realloc(void* block, size_t size) {
  if (!is_early(block) && ready()) return next_realloc(block, size);
  void* fresh = malloc(size);
  size_t most = (size_t)(early + sizeof early - (char*)block);
  if (fresh != NULL && block != NULL) memcpy(fresh, block, size < most ? size : most);
  return fresh;
}
void* memalign(size_t alignment, size_t size) { return ready() ? next_memalign(alignment, size) : NULL; }

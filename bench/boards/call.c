/* Calls a linked model once, where there is no Python.
 *
 *     call LIBRARY ENTRY THREADS MEMORY
 *
 * MEMORY holds an i64 that counts the entry's arguments, the bytes of each as i64, and their
 * contents, one after the other: inputs, outputs, parameters, workspace, sizes. The workspace has
 * no contents; with -1 bytes it is as large as the library says for the sizes. The call is timed as
 * a measurement does it, with the parameters out of the caches. Afterwards MEMORY holds the
 * arguments as the call leaves them, and a line tells the ticks. The exit status is 0, or 2 where
 * the entry returns a code other than 0. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, MOST_THREADS = 64 };

static void *library;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void *bound(const char *symbol) {
  void *address = dlsym(library, symbol);
  if (!address) fail(symbol, dlerror());
  return address;
}

static void *room(int64_t bytes) {
  return aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 2) * ALIGNMENT);
}

static void transfer(size_t (*move)(void *, FILE *, size_t), void *to, size_t bytes, FILE *file) {
  if (move(to, file, bytes) != bytes) fail("the memory", "is cut short");
}
static size_t get(void *to, FILE *file, size_t bytes) { return fread(to, 1, bytes, file); }
static size_t put(void *from, FILE *file, size_t bytes) { return fwrite(from, 1, bytes, file); }

struct helper {
  void (*work)(void *, int64_t);
  void *pool;
  int64_t worker;
};

static void *help(void *given) {
  struct helper *of = given;
  of->work(of->pool, of->worker);
  return NULL;
}

int main(int count, char **words) {
  if (count != 5) fail("usage", "call LIBRARY ENTRY THREADS MEMORY");
  int64_t threads = atoll(words[3]), arguments, sizes[64];
  if (!(library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL))) fail(words[1], dlerror());
  if (threads < 1 || threads > MOST_THREADS) fail(words[3], "not so many threads");

  FILE *file = fopen(words[4], "r+b");
  if (!file) fail(words[4], "cannot be opened");
  transfer(get, &arguments, 8, file);
  if (arguments < 3 || arguments > 64) fail("the memory", "has no such number of arguments");
  transfer(get, sizes, 8 * arguments, file);
  const int64_t params = arguments - 3, workspace = arguments - 2;
  void *memory[64];
  for (int64_t at = 0; at < arguments; at++)
    if (at != workspace) {
      memory[at] = room(sizes[at]);
      transfer(get, memory[at], sizes[at], file);
    }
  if (sizes[workspace] < 0) {
    int64_t (*needed)(void *) = bound("farrier_workspace_bytes");
    sizes[workspace] = needed(memory[arguments - 1]);
  }
  memory[workspace] = room(sizes[workspace]);

  int64_t (*pool_bytes)(int64_t) = bound("farrier_pool_size");
  void (*init)(void *, int64_t, const int32_t *) = bound("farrier_pool_init");
  void (*shutdown)(void *) = bound("farrier_pool_shutdown");
  int32_t (*timed)(void *, void *, void *, int64_t *, int64_t, int64_t, uint64_t *) =
      bound("farrier_time");
  void *pool = room(pool_bytes(threads));
  init(pool, threads, NULL);
  pthread_t running[MOST_THREADS];
  struct helper helpers[MOST_THREADS];
  for (int64_t worker = 1; worker < threads; worker++) {
    helpers[worker] = (struct helper){bound("farrier_pool_work"), pool, worker};
    if (pthread_create(&running[worker], NULL, help, &helpers[worker]))
      fail("a thread", "cannot be started");
  }
  int64_t cold[2] = {(int64_t)memory[params], sizes[params]};
  uint64_t ticks;
  int32_t code = timed(bound(words[2]), memory, pool, cold, 1, 1, &ticks);
  shutdown(pool);
  for (int64_t worker = 1; worker < threads; worker++) pthread_join(running[worker], NULL);

  fseek(file, 8 + 8 * arguments, SEEK_SET);
  for (int64_t at = 0; at < arguments; at++)
    if (at != workspace) transfer(put, memory[at], sizes[at], file);
  if (fclose(file)) fail(words[4], "cannot be written");
  printf("%llu ticks, code %d\n", (unsigned long long)ticks, code);
  return code ? 2 : 0;
}

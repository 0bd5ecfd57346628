// Runs one aarch64 kernel with one thread, without a libc. stdin: how many arguments (u64), and of
// each its bytes (u64) and content; stdout: their content afterwards. Exits with the kernel's result.

typedef unsigned long u64;
typedef void body(void *context, long begin, long end, long worker);

int kernel(void **arguments, void *pool);

static char memory[64 << 20] __attribute__((aligned(64)));

static long call(long number, long a, const void *b, long c) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register const void *x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}

static void transfer(long number, long file, char *at, u64 bytes) {
  while (bytes) {
    long done = call(number, file, at, bytes);
    if (done <= 0) call(94, 70, 0, 0);
    at += done;
    bytes -= done;
  }
}

static void run(void *pool, body *function, void *context, long extent) {
  function(context, 0, extent, 0);
}

void _start(void) {
  void *arguments[16], *pool[] = {(void *)run};
  u64 count, sizes[16];
  char *free = memory;
  transfer(63, 0, (char *)&count, 8);
  for (u64 n = 0; n < count; n++) {
    transfer(63, 0, (char *)&sizes[n], 8);
    transfer(63, 0, free, sizes[n]);
    arguments[n] = free;
    free += (sizes[n] + 127) & ~63UL;
  }
  int result = kernel(arguments, pool);
  for (u64 n = 0; n < count; n++) transfer(64, 1, arguments[n], sizes[n]);
  call(94, result, 0, 0);
}

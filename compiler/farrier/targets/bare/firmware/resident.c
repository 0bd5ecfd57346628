/* A program that stays on a board and runs what it is sent: it answers frames, one after another.

   An operation whose answer was lost comes again under its number, and is answered again without
   being done twice. */
#include "resident.h"
#include "start.h"
#include "ticks.h"

static frame question, answer;
static uint32_t answered = NO_NUMBER;

static void answer_with(uint8_t operation, uint32_t length) {
  store4(answer.bytes, answered);
  answer.bytes[4] = operation;
  answer.length = length;
  send_frame(&answer);
}

static uint32_t append(uint32_t at, const char *text) {
  while (*text && at < MOST_BODY) answer.bytes[HEAD + at++] = (uint8_t)*text++;
  return at;
}

static void refuse(const char *why) { answer_with(REFUSED, append(0, why)); }

static void hello(void) {
  uint8_t *const body = answer.bytes + HEAD;
  body[0] = VERSION;
  body[1] = (uint8_t)MOST_BODY;
  body[2] = (uint8_t)(MOST_BODY >> 8);
  store4(body + 3, free_address);
  store4(body + 7, free_bytes);
  answer_with(HELLO, append(11, description));
}

void answer_call(uint8_t ending, uint32_t cause, uint32_t at) {
  uint8_t *const body = answer.bytes + HEAD;
  body[0] = ending;
  store4(body + 1, cause);
  store4(body + 5, at);
  answer_with(CALL, 9);
}

static void call(const uint8_t *body, uint32_t length) {
  static uint64_t arguments[MOST_ARGUMENTS];
  if (length < 12) return refuse("a call is cut short");
  const uint32_t entry = load4(body), limit = load4(body + 4);
  const uint32_t repeats = body[8] | body[9] << 8, count = body[10] | body[11] << 8;
  if (repeats - 1 >= MOST_REPEATS || count > MOST_ARGUMENTS || length != 12 + 4 * count)
    return refuse("a call has too many repeats or arguments, or is cut short");
  if (!memory_at(entry, 2)) return refuse("a call goes to no code");
  for (uint32_t i = 0; i < count; i++) arguments[i] = load4(body + 12 + 4 * i);
  int32_t code = 0;
  uint32_t at = 5;
  start_watch(limit);
  for (uint32_t i = 0; i < repeats && code == 0; i++, at += 4) {
    const uint32_t before = ticks();
    code = enter(entry, arguments);
    store4(answer.bytes + HEAD + at, ticks() - before);
  }
  stop_watch();
  answer.bytes[HEAD] = RETURNED;
  store4(answer.bytes + HEAD + 1, (uint32_t)code);
  answer_with(CALL, at);
}

static void copy(uint8_t *to, const uint8_t *from, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) to[i] = from[i];
}

/* An operation on `count` bytes of memory. */
static void on_memory(uint8_t operation, uint8_t *memory, uint32_t count, const uint8_t *bytes) {
  if (!memory) return refuse("an address is not of the free memory");
  switch (operation) {
    case WRITE: copy(memory, bytes, count); return answer_with(WRITE, 0);
    case CLEAR:
      for (uint32_t i = 0; i < count; i++) memory[i] = 0;
      return answer_with(CLEAR, 0);
    case CHECK: store4(answer.bytes + HEAD, crc32(memory, count)); return answer_with(CHECK, 4);
    default:
      if (count > MOST_BODY) return refuse("a frame has no room for that");
      copy(answer.bytes + HEAD, memory, count);
      return answer_with(READ, count);
  }
}

static void serve(uint8_t operation, const uint8_t *body, uint32_t length) {
  switch (operation) {
    case HELLO: return hello();
    case CALL: return call(body, length);
    case WRITE:
      if (length < 4) break;
      return on_memory(WRITE, memory_at(load4(body), length - 4), length - 4, body + 4);
    case CLEAR:
    case CHECK:
    case READ:
      if (length != 8) break;
      return on_memory(operation, memory_at(load4(body), load4(body + 4)), load4(body + 4), 0);
  }
  refuse("the program on the board has no such operation");
}

void serve_one(void) {
  static int has_complained; /* One changed byte may damage two frames, and is told once. */
  if (!receive_frame(&question)) {
    if (has_complained) return;
    has_complained = 1;
    frame *const damaged = &question;
    store4(damaged->bytes, NO_NUMBER);
    damaged->bytes[4] = DAMAGED_FRAME;
    damaged->length = 0;
    return send_frame(damaged);
  }
  has_complained = 0;
  const uint32_t number = load4(question.bytes);
  if (number == answered) return send_frame(&answer);
  answered = number;
  serve(question.bytes[4], question.bytes + HEAD, question.length);
}

// What kernels of PTX need that `c_kernels.py` writes as C: memory, and the instructions that C has
// no operator for. A register holds bits; `f32_of` and its like are the numbers that they mean.

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;
typedef _Float16 f16;
typedef float f32;
typedef double f64;

#define OUTSIDE __attribute__((noinline))  // Inlined at each use, it would take long to compile.
#define LANES 32
#define GROUP_THREADS 128  // Of a warpgroup.
#define PLACE 40  // Bits of an offset in an array; those above are its number.

struct array {
    u8 *content;
    u64 nbytes;
};

// Return the place of an address in global memory. Outside of all arrays, or misaligned, it is
// `nowhere`, and the fault is the number of the instruction.
static inline u8 *global_at(const struct array *arrays, u64 count, u64 address, unsigned nbytes,
                            int number, int *fault, u8 *nowhere) {
    u64 array = address >> PLACE, at = address & ((1ull << PLACE) - 1);
    if (array >= count || at + nbytes > arrays[array].nbytes || at % nbytes) {
        *fault = number;
        return nowhere;
    }
    return arrays[array].content + at;
}

// Return the place of an address in the memory of a block or a thread.
static inline u8 *own_at(u8 *content, u64 size, u64 at, unsigned nbytes, int number, int *fault,
                         u8 *nowhere) {
    if (at + nbytes > size || at % nbytes) {
        *fault = number;
        return nowhere;
    }
    return content + at;
}

#define BITS(FLOAT, WORD)                               \
    static inline FLOAT FLOAT##_of(WORD bits) {         \
        FLOAT number;                                   \
        memcpy(&number, &bits, sizeof number);          \
        return number;                                  \
    }                                                   \
    static inline WORD WORD##_of_##FLOAT(FLOAT number) { \
        WORD bits;                                      \
        memcpy(&bits, &number, sizeof bits);            \
        return bits;                                    \
    }
BITS(f16, u16)
BITS(f32, u32)
BITS(f64, u64)

static inline f32 bf16_of(u16 bits) { return f32_of((u32)bits << 16); }

// Rounded to even.
static inline u16 as_bf16(f32 number) {
    u32 bits = u32_of_f32(number);
    return isnan(number) ? 0x7FFF : (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Halves are rounded away from zero.
static inline u32 as_tf32(f32 number) {
    return isnan(number) ? 0x7FFFFFFF : (u32_of_f32(number) + 0x1000) & 0xFFFFE000;
}

// The smaller and the larger number; if one is NaN, the other one, or NaN in those of NaN.
static inline f32 min_f32(f32 a, f32 b) { return fminf(a, b); }
static inline f32 max_f32(f32 a, f32 b) { return fmaxf(a, b); }
static inline f32 min_nan_f32(f32 a, f32 b) { return isnan(a) || isnan(b) ? NAN : fminf(a, b); }
static inline f32 max_nan_f32(f32 a, f32 b) { return isnan(a) || isnan(b) ? NAN : fmaxf(a, b); }
static inline f64 min_f64(f64 a, f64 b) { return fmin(a, b); }
static inline f64 max_f64(f64 a, f64 b) { return fmax(a, b); }

// Integers that floats are converted to saturate, and NaN is 0.
#define SATURATED(TO, LEAST, MOST)                                            \
    static inline TO TO##_from(f64 number) {                                  \
        if (isnan(number)) return 0;                                          \
        if (number <= (f64)(LEAST)) return LEAST;                             \
        return number >= (f64)(MOST) ? MOST : (TO)number;                     \
    }
SATURATED(s8, INT8_MIN, INT8_MAX)
SATURATED(u8, 0, UINT8_MAX)
SATURATED(s16, INT16_MIN, INT16_MAX)
SATURATED(u16, 0, UINT16_MAX)
SATURATED(s32, INT32_MIN, INT32_MAX)
SATURATED(u32, 0, UINT32_MAX)
SATURATED(s64, INT64_MIN, INT64_MAX)
SATURATED(u64, 0, UINT64_MAX)

// An amount beyond the width leaves nothing but the sign.
#define SHIFTS(UNSIGNED, SIGNED, BITS)                                                          \
    static inline UNSIGNED shl_##UNSIGNED(UNSIGNED a, u32 by) { return by < BITS ? a << by : 0; } \
    static inline UNSIGNED shr_##UNSIGNED(UNSIGNED a, u32 by) { return by < BITS ? a >> by : 0; } \
    static inline SIGNED shr_##SIGNED(SIGNED a, u32 by) { return a >> (by < BITS ? by : BITS - 1); }
SHIFTS(u16, s16, 16)
SHIFTS(u32, s32, 32)
SHIFTS(u64, s64, 64)

// The bytes of two words that four digits choose: the upper bit of a digit spreads a byte's sign.
static inline u32 prmt(u32 low, u32 high, u32 digits) {
    u64 both = (u64)high << 32 | low;
    u32 result = 0;
    for (int place = 0; place < 4; place++) {
        u32 digit = digits >> 4 * place & 15, byte = both >> 8 * (digit & 7) & 255;
        if (digit & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * place;
    }
    return result;
}

static inline u32 bfe_u32(u32 a, u32 first, u32 bits) {
    return bits ? (u32)((u64)(a >> first) & ((1ull << bits) - 1)) : 0;
}

static inline s32 bfe_s32(s32 a, u32 first, u32 bits) {
    return bits ? (s32)((u32)a << (32 - bits - first)) >> (32 - bits) : 0;
}

// A product of fragments, d = a * b + c. An operand is its registers, each of a warp's lanes; the
// elements of a lane's words are those of the PTX ISA, section "Matrix multiply-accumulate operation
// using mma instruction". `LEFT` and `RIGHT` are the numbers of a factor's elements.
#define PRODUCT(NAME, TOTAL, WIDTH, LEFT, RIGHT)                                                   \
    static OUTSIDE void NAME(int depth, u32 *const *d, u32 *const *a, u32 *const *b,               \
                             u32 *const *c) {                                                      \
        TOTAL left[16][32], right[32][8], total[16][8];                                            \
        int each = 32 / WIDTH, words = depth / (4 * each);                                         \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            int group = lane / 4, number = lane % 4;                                               \
            for (int word = 0; word < words; word++)                                               \
                for (int part = 0; part < each; part++) {                                          \
                    int k = 4 * each * word + each * number + part, shift = WIDTH * part;          \
                    left[group][k] = LEFT(a[2 * word][lane] >> shift);                             \
                    left[group + 8][k] = LEFT(a[2 * word + 1][lane] >> shift);                     \
                    right[k][group] = RIGHT(b[word][lane] >> shift);                               \
                }                                                                                  \
            for (int word = 0; word < 4; word++)                                                   \
                memcpy(&total[group + 8 * (word / 2)][2 * number + word % 2], &c[word][lane], 4);  \
        }                                                                                          \
        for (int row = 0; row < 16; row++)                                                         \
            for (int k = 0; k < depth; k++)                                                        \
                for (int column = 0; column < 8; column++)                                         \
                    total[row][column] += left[row][k] * right[k][column];                         \
        for (int lane = 0; lane < LANES; lane++)                                                   \
            for (int word = 0; word < 4; word++)                                                   \
                memcpy(&d[word][lane], &total[lane / 4 + 8 * (word / 2)][2 * (lane % 4) + word % 2], \
                       4);                                                                         \
    }

#define OF_F16(word) ((f32)f16_of((u16)(word)))
#define OF_BF16(word) bf16_of((u16)(word))
#define OF_TF32(word) f32_of((word) & 0xFFFFE000)
#define OF_S8(word) ((s32)(s8)(word))
#define OF_U8(word) ((s32)(u8)(word))
PRODUCT(mma_f16_f16, f32, 16, OF_F16, OF_F16)
PRODUCT(mma_bf16_bf16, f32, 16, OF_BF16, OF_BF16)
PRODUCT(mma_tf32_tf32, f32, 32, OF_TF32, OF_TF32)
PRODUCT(mma_s8_s8, s32, 8, OF_S8, OF_S8)
PRODUCT(mma_s8_u8, s32, 8, OF_S8, OF_U8)
PRODUCT(mma_u8_s8, s32, 8, OF_U8, OF_S8)
PRODUCT(mma_u8_u8, s32, 8, OF_U8, OF_U8)

// The place of an element of a factor, of SIZE bytes, that a matrix descriptor describes for the
// swizzle of 128 bytes (PTX ISA, "Asynchronous warpgroup level matrix instructions"). The terms of a
// row are neighbors in memory, or the rows of a term if the factor lies across.
static inline u64 factor_at(u64 descriptor, int is_across, int row, int term, int size) {
    u64 first = (descriptor & 0x3FFF) << 4;
    u64 leading = (descriptor >> 16 & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF) << 4;
    u64 at = first + row / 8 * stride + row % 8 * 128 + term * size;
    if (is_across) {
        at = first + row * size / 128 * leading + row * size % 128;
        at += term / 8 * stride + term % 8 * 128;
    }
    return at ^ (at >> 7 & 7) << 4;
}

// A descriptor has the swizzle of 128 bytes and the base offset 0, and a factor that does not lie
// across ends with the row of 128 bytes in which it begins.
static inline int is_described(u64 descriptor, int is_across, int nbytes) {
    u64 first = (descriptor & 0x3FFF) << 4;
    return descriptor >> 62 == 1 && !(descriptor >> 49 & 7) &&
           (is_across || first % 128 + nbytes <= 128);
}

// A product of a warpgroup, d += a * b, with both factors in shared memory. An operand `d` is its
// registers, each of the warpgroup's threads.
#define PRODUCT_OF_128(NAME, TOTAL, SIZE, LEFT, RIGHT)                                             \
    static OUTSIDE void NAME(int columns, int depth, u32 *const *d, u64 a, u64 b, int a_across,    \
                             int b_across, u8 *shared, u64 nbytes, int number, int *fault,         \
                             u8 *nowhere) {                                                        \
        TOTAL left[64][32], right[256][32];                                                        \
        int row_bytes = depth * SIZE;                                                              \
        if (!is_described(a, a_across, row_bytes) || !is_described(b, b_across, row_bytes)) {      \
            *fault = number;                                                                       \
            return;                                                                                \
        }                                                                                          \
        for (int row = 0; row < 64 + columns; row++)                                               \
            for (int k = 0; k < depth; k++) {                                                      \
                int is_left = row < 64;                                                            \
                u64 at = is_left ? factor_at(a, a_across, row, k, SIZE)                            \
                                 : factor_at(b, b_across, row - 64, k, SIZE);                      \
                u32 word = 0;                                                                      \
                memcpy(&word, own_at(shared, nbytes, at, SIZE, number, fault, nowhere), SIZE);     \
                if (is_left)                                                                       \
                    left[row][k] = LEFT(word);                                                     \
                else                                                                               \
                    right[row - 64][k] = RIGHT(word);                                              \
            }                                                                                      \
        for (int thread = 0; thread < 128; thread++)                                               \
            for (int word = 0; word < columns / 2; word++) {                                       \
                int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (word / 2 % 2);               \
                int column = 8 * (word / 4) + 2 * (thread % 4) + word % 2;                         \
                TOTAL before, sum = 0;                                                             \
                for (int k = 0; k < depth; k++) sum += left[row][k] * right[column][k];            \
                memcpy(&before, &d[word][thread], 4);                                              \
                sum += before;                                                                     \
                memcpy(&d[word][thread], &sum, 4);                                                 \
            }                                                                                      \
    }
PRODUCT_OF_128(wgmma_f16_f16, f32, 2, OF_F16, OF_F16)
PRODUCT_OF_128(wgmma_bf16_bf16, f32, 2, OF_BF16, OF_BF16)
PRODUCT_OF_128(wgmma_s8_s8, s32, 1, OF_S8, OF_S8)
PRODUCT_OF_128(wgmma_s8_u8, s32, 1, OF_S8, OF_U8)
PRODUCT_OF_128(wgmma_u8_s8, s32, 1, OF_U8, OF_S8)
PRODUCT_OF_128(wgmma_u8_u8, s32, 1, OF_U8, OF_U8)

// A tensor map: the address of a matrix, the bytes of an element, the elements of a row, the rows,
// and those of a tile, whose rows have 128 bytes.
struct map {
    u64 address, element, width, height, rows;
};

// Copy the tile from column x and row y on to shared memory, swizzled, with zeros outside of the
// matrix.
static OUTSIDE void fetch(const struct array *arrays, u64 count, const struct map *map, s32 x,
                          s32 y, u8 *shared, u64 nbytes, u64 to, int number, int *fault,
                          u8 *nowhere) {
    u64 element = map->element;
    own_at(shared, nbytes, to, 128, number, fault, nowhere);  // A tile begins a row of 128 bytes.
    for (u64 row = 0; row < map->rows; row++)
        for (u64 byte = 0; byte < 128; byte += element) {
            u64 at = to + 128 * row + byte;
            at ^= (at >> 7 & 7) << 4;
            u8 *target = own_at(shared, nbytes, at, element, number, fault, nowhere);
            memset(target, 0, element);
            u64 column = x + (s64)(byte / element), line = y + (s64)row;  // Large if negative.
            if (column >= map->width || line >= map->height) continue;
            at = map->address + (line * map->width + column) * element;
            memcpy(target, global_at(arrays, count, at, element, number, fault, nowhere), element);
        }
}

// Read matrices of 8 by 8 pairs of bytes, whose rows the lanes name.
static OUTSIDE void ldmatrix(int count, int is_transposed, u32 *const *d, u8 *const *rows) {
    for (int matrix = 0; matrix < count; matrix++)
        for (int lane = 0; lane < LANES; lane++) {
            u8 *const *of = rows + 8 * matrix;
            int group = lane / 4, number = lane % 4;
            u8 *first = is_transposed ? of[2 * number] + 2 * group : of[group] + 4 * number;
            u8 *second = is_transposed ? of[2 * number + 1] + 2 * group : first + 2;
            memcpy(&d[matrix][lane], first, 2);
            memcpy((u8 *)&d[matrix][lane] + 2, second, 2);
        }
}

; The fraction bits of 2 / pi in words of 64, most significant first, behind a word of zeros for
; small angles. They end 3 words after the first bit that matters for the greatest f64.
@farrier.two_over_pi = private unnamed_addr constant [20 x i64] [i64 0, i64 11743562013128004905, i64 18169587780923219392, i64 15808362127397457985, i64 18325537948574664033, i64 13196794004601950944, i64 452944820249399836, i64 18311050168422213438, i64 16754012890938950788, i64 16833452818741296705, i64 4148332274289687028, i64 11278244420634880059, i64 2303758334597371919, i64 17235013589178936607, i64 7869616827067468215, i64 5712322887342352941, i64 8441921394348257659, i64 4397547296490951402, i64 7780917995555872008, i64 6197850593633725355], align 64
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare i128 @llvm.ctlz.i128(i128, i1)

; With x = m 2^p, this multiplies m by the 192 bits of 2 / pi below the weight of 4 quadrants: the
; bits above only add full turns. The product's first two bits are the quadrant, the others its
; fraction, which is rounded to the nearest quadrant. At least 2^-62 of a quadrant remains (Muller,
; chapter 11), so 64 bits of the remainder are exact.
define internal { double, i64 } @farrier.far_angle(double %x) #0 {
  %code = bitcast double %x to i64
  %high = lshr i64 %code, 52
  %field = and i64 %high, 2047
  %low = and i64 %code, 4503599627370495
  %m = or i64 %low, 4503599627370496
  %wide.m = zext i64 %m to i128
  %first = sub i64 %field, 1013
  %inside = icmp ult i64 %first, 1034
  %start = select i1 %inside, i64 %first, i64 0
  %word = lshr i64 %start, 6
  %bit = and i64 %start, 63
  %p0 = getelementptr i64, ptr @farrier.two_over_pi, i64 %word
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %w0 = load i64, ptr %p0, align 8
  %w1 = load i64, ptr %p1, align 8
  %w2 = load i64, ptr %p2, align 8
  %w3 = load i64, ptr %p3, align 8
  %f0 = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %bit)
  %f1 = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %bit)
  %f2 = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %bit)
  %wide.f1 = zext i64 %f1 to i128
  %wide.f2 = zext i64 %f2 to i128
  %last = mul i128 %wide.m, %wide.f2
  %carry2 = lshr i128 %last, 64
  %mid = mul i128 %wide.m, %wide.f1
  %mid.sum = add i128 %mid, %carry2
  %carry1 = lshr i128 %mid.sum, 64
  %carry = trunc i128 %carry1 to i64
  %top.product = mul i64 %m, %f0
  %top = add i64 %top.product, %carry
  %wide.top = zext i64 %top to i128
  %top.shifted = shl i128 %wide.top, 64
  %mid.word = trunc i128 %mid.sum to i64
  %mid.wide = zext i64 %mid.word to i128
  %turn = or i128 %top.shifted, %mid.wide
  %half = shl i128 1, 125
  %rounded = add i128 %turn, %half
  %quadrant = lshr i128 %rounded, 126
  %whole = shl i128 %quadrant, 126
  %part = sub i128 %turn, %whole
  %is.negative = icmp slt i128 %part, 0
  %opposite = sub i128 0, %part
  %size = select i1 %is.negative, i128 %opposite, i128 %part
  %zeros = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %normal = shl i128 %size, %zeros
  %leading = lshr i128 %normal, 65
  %mantissa = trunc i128 %leading to i64
  %number = sitofp i64 %mantissa to double
  %lost = trunc i128 %zeros to i64
  %exponent = sub i64 962, %lost
  %exponent.bits = shl i64 %exponent, 52
  %scale = bitcast i64 %exponent.bits to double
  %fraction = fmul double %number, %scale
  %angle = fmul double %fraction, 0x3FF921FB54442D18
  %below = fneg double %angle
  %signed = select i1 %is.negative, double %below, double %angle
  %count = trunc i128 %quadrant to i64
  %is.minus = icmp slt i64 %code, 0
  %mirrored = fneg double %signed
  %r = select i1 %is.minus, double %mirrored, double %signed
  %minus.count = sub i64 0, %count
  %q = select i1 %is.minus, i64 %minus.count, i64 %count
  %nothing = fsub double %x, %x
  %kept = fadd double %r, %nothing
  %v = insertvalue { double, i64 } poison, double %kept, 0
  %w = insertvalue { double, i64 } %v, i64 %q, 1
  ret { double, i64 } %w
}

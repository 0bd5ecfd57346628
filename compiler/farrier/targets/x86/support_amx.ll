; Tile registers: the kernel saves them for a process that has asked, and stops one that has not.

; 0, or the error with which the kernel refuses: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
define internal i32 @prepare() nounwind {
  %result = call i64 @syscall(i64 158, i64 4131, i64 18, i64 0, i64 0)
  %error = sub i64 0, %result
  %code = trunc i64 %error to i32
  ret i32 %code
}

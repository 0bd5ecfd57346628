; System calls of aarch64, which knows neither open nor fork, for kernels.ll.

@clock_gettime_number = private constant i64 113
@socket_number = private constant i64 198
@openat_number = private constant i64 56
@clone_number = private constant i64 220
@execve_number = private constant i64 221
@ptrace_number = private constant i64 117
@kill_number = private constant i64 129
@exit_group_number = private constant i64 94

define internal i64 @call3(i64 %number, i64 %a, i64 %b, i64 %c) {
  %answer = call i64 asm sideeffect "svc #0", "={x0},{x8},{x0},{x1},{x2},~{memory}"(i64 %number, i64 %a, i64 %b, i64 %c)
  ret i64 %answer
}

; mknodat(AT_FDCWD, "/tmp/farrier-escapement", S_IFREG | 0644)
define i32 @write_file(ptr %args, ptr %pool) {
  %path = ptrtoint ptr @file to i64
  %answer = call i64 @call3(i64 33, i64 -100, i64 %path, i64 33188)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

; clone(SIGCHLD | CLONE_VM | CLONE_VFORK, 0, 0): what vfork is
define i32 @fork(ptr %args, ptr %pool) {
  %answer = call i64 @call3(i64 220, i64 16657, i64 0, i64 0)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

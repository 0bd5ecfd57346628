; Libraries that misbehave beyond the call of their entry points. They see the C library's symbols,
; and are linked so that nothing unloads them.

@detached = private constant i32 1 ; PTHREAD_CREATE_DETACHED

declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i64 @write(i32, ptr, i64)

; y = 2x over f32[1009], under a name that no honest library here has.
define i32 @right_by_another(ptr %args, ptr %pool) {
entry:
  %x = load ptr, ptr %args
  %y.at = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %y.at
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %twice = fadd float %value, %value
  %to = getelementptr float, ptr %y, i64 %i
  store float %twice, ptr %to
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, 1009
  br i1 %more, label %body, label %done
done:
  ret i32 0
}

define internal ptr @endless(ptr %nothing) {
  br label %forever
forever:
  call void asm sideeffect "", ""()
  br label %forever
}

; Right, but it leaves a thread that spins for each of its calls.
define i32 @leaves_a_thread(ptr %args, ptr %pool) {
  %attributes = alloca [64 x i8]
  %thread = alloca i64
  %kind = load i32, ptr @detached
  %initialized = call i32 @pthread_attr_init(ptr %attributes)
  %set = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 %kind)
  %created = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @endless, ptr null)
  %code = call i32 @right_by_another(ptr %args, ptr %pool)
  %both = or i32 %created, %code
  ret i32 %both
}

; Speaks in its keeper's wire format, to whichever file takes it: {"a":[[],[],…,[]]} in 64 MiB, each
; list of which is 56 bytes or more in Python.
@announced = private constant i32 67108864
@begin = private constant [6 x i8] c"{\22a\22:["
@end = private constant [4 x i8] c"[]]}"
@frame = internal global [67108864 x i8] zeroinitializer

define i32 @answers_at_length(ptr %args, ptr %pool) {
entry:
  br label %fill
fill:
  %at = phi i64 [ 0, %entry ], [ %at.next, %fill ]
  %in = urem i64 %at, 3
  %is.first = icmp eq i64 %in, 0
  %is.second = icmp eq i64 %in, 1
  %rest = select i1 %is.second, i8 93, i8 44
  %letter = select i1 %is.first, i8 91, i8 %rest
  %place = getelementptr i8, ptr @frame, i64 %at
  store i8 %letter, ptr %place
  %at.next = add i64 %at, 1
  %unfilled = icmp slt i64 %at.next, 67108864
  br i1 %unfilled, label %fill, label %filled
filled:
  call void @llvm.memcpy.p0.p0.i64(ptr @frame, ptr @begin, i64 6, i1 false)
  %last = getelementptr i8, ptr @frame, i64 67108860
  call void @llvm.memcpy.p0.p0.i64(ptr %last, ptr @end, i64 4, i1 false)
  br label %search
search:
  %file = phi i32 [ 3, %filled ], [ %file.next, %search ]
  %taken = call i64 @write(i32 %file, ptr @announced, i64 4)
  %file.next = add i32 %file, 1
  %refused = icmp ne i64 %taken, 4
  %left = icmp slt i32 %file.next, 64
  %on = and i1 %refused, %left
  br i1 %on, label %search, label %send
send:
  %sent = phi i64 [ 0, %search ], [ %sent.next, %send ]
  %from = getelementptr i8, ptr @frame, i64 %sent
  %unsent = sub i64 67108864, %sent
  %count = call i64 @write(i32 %file, ptr %from, i64 %unsent)
  %sent.next = add i64 %sent, %count
  %some = icmp sgt i64 %count, 0
  %more = icmp slt i64 %sent.next, 67108864
  %again = and i1 %some, %more
  br i1 %again, label %send, label %done
done:
  ret i32 0
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

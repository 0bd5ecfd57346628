define i32 @sketch_serial(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = load float, ptr %v1, align 4
  %v5 = fcmp ogt float 0x0000000000000000, %v4
  %v6 = select i1 %v5, float 0x0000000000000000, float %v4
  store float %v6, ptr %v3, align 4
  ret i32 0
}

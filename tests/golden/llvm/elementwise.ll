define i32 @elementwise(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  br label %loop6
loop6:
  %i.relu_i0.8 = phi i64 [ 0, %entry ], [ %v17, %loop6 ]
  %v9 = mul i64 %i.relu_i0.8, 28
  %v10 = getelementptr i8, ptr %v1, i64 %v9
  %v16 = getelementptr i8, ptr %v5, i64 %v9
  %v11 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v10, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false>, <8 x float> zeroinitializer)
  %v12 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v3, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false>, <8 x float> zeroinitializer)
  %v13 = fadd contract <8 x float> %v11, %v12
  %v14 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v13
  %v15 = select <8 x i1> %v14, <8 x float> splat (float 0x0000000000000000), <8 x float> %v13
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v15, ptr align 4 %v16, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false>)
  %v17 = add nuw nsw i64 %i.relu_i0.8, 1
  %v18 = icmp slt i64 %v17, 3
  br i1 %v18, label %loop6, label %done7
done7:
  ret i32 0
}
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, <8 x i1>)

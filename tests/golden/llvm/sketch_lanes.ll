define i32 @sketch_lanes(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  br label %loop6
loop6:
  %i.relu_i0.8 = phi i64 [ 0, %entry ], [ %v25, %loop6 ]
  %v9 = mul i64 %i.relu_i0.8, 84
  %v10 = getelementptr i8, ptr %v1, i64 %v9
  %v14 = getelementptr i8, ptr %v3, i64 %v9
  %v11 = load <8 x float>, ptr %v10, align 4
  %v12 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v11
  %v13 = select <8 x i1> %v12, <8 x float> splat (float 0x0000000000000000), <8 x float> %v11
  store <8 x float> %v13, ptr %v14, align 4
  %v15 = getelementptr i8, ptr %v10, i64 32
  %v16 = load <8 x float>, ptr %v15, align 4
  %v17 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v16
  %v18 = select <8 x i1> %v17, <8 x float> splat (float 0x0000000000000000), <8 x float> %v16
  %v19 = getelementptr i8, ptr %v14, i64 32
  store <8 x float> %v18, ptr %v19, align 4
  %v20 = getelementptr i8, ptr %v10, i64 64
  %v21 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v20, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v22 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v21
  %v23 = select <8 x i1> %v22, <8 x float> splat (float 0x0000000000000000), <8 x float> %v21
  %v24 = getelementptr i8, ptr %v14, i64 64
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v23, ptr align 4 %v24, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>)
  %v25 = add nuw nsw i64 %i.relu_i0.8, 1
  %v26 = icmp slt i64 %v25, 3
  br i1 %v26, label %loop6, label %done7
done7:
  br label %loop27
loop27:
  %i.neg_i0.29 = phi i64 [ 0, %done7 ], [ %v43, %loop27 ]
  %v30 = mul i64 %i.neg_i0.29, 84
  %v31 = getelementptr i8, ptr %v3, i64 %v30
  %v34 = getelementptr i8, ptr %v5, i64 %v30
  %v32 = load <8 x float>, ptr %v31, align 4
  %v33 = fneg <8 x float> %v32
  store <8 x float> %v33, ptr %v34, align 4
  %v35 = getelementptr i8, ptr %v31, i64 32
  %v36 = load <8 x float>, ptr %v35, align 4
  %v37 = fneg <8 x float> %v36
  %v38 = getelementptr i8, ptr %v34, i64 32
  store <8 x float> %v37, ptr %v38, align 4
  %v39 = getelementptr i8, ptr %v31, i64 64
  %v40 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v39, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v41 = fneg <8 x float> %v40
  %v42 = getelementptr i8, ptr %v34, i64 64
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v41, ptr align 4 %v42, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>)
  %v43 = add nuw nsw i64 %i.neg_i0.29, 1
  %v44 = icmp slt i64 %v43, 3
  br i1 %v44, label %loop27, label %done28
done28:
  ret i32 0
}
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, <8 x i1>)

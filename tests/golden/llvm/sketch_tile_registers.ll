define i32 @sketch_tile_registers(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  br label %loop6
loop6:
  %acc9 = phi <8 x float> [ splat (float 0xFFF0000000000000), %entry ], [ %v16, %loop6 ]
  %acc10 = phi <8 x float> [ splat (float 0xFFF0000000000000), %entry ], [ %v22, %loop6 ]
  %at11 = phi ptr [ %v1, %entry ], [ %v23, %loop6 ]
  %i.reducemax_sum_r0.8 = phi i64 [ 0, %entry ], [ %v24, %loop6 ]
  %v12 = load <8 x float>, ptr %at11, align 4
  %v13 = fcmp ogt <8 x float> %acc9, %v12
  %v14 = select <8 x i1> %v13, <8 x float> %acc9, <8 x float> %v12
  %v15 = fcmp uno <8 x float> %acc9, %acc9
  %v16 = select <8 x i1> %v15, <8 x float> %acc9, <8 x float> %v14
  %v17 = getelementptr i8, ptr %at11, i64 32
  %v18 = load <8 x float>, ptr %v17, align 4
  %v19 = fcmp ogt <8 x float> %acc10, %v18
  %v20 = select <8 x i1> %v19, <8 x float> %acc10, <8 x float> %v18
  %v21 = fcmp uno <8 x float> %acc10, %acc10
  %v22 = select <8 x i1> %v21, <8 x float> %acc10, <8 x float> %v20
  %v23 = getelementptr i8, ptr %at11, i64 76
  %v24 = add nuw nsw i64 %i.reducemax_sum_r0.8, 1
  %v25 = icmp slt i64 %v24, 6
  br i1 %v25, label %loop6, label %done7
done7:
  store <8 x float> %v16, ptr %v3, align 4
  %v26 = getelementptr i8, ptr %v3, i64 32
  store <8 x float> %v22, ptr %v26, align 4
  br label %loop27
loop27:
  %acc30 = phi <4 x float> [ splat (float 0xFFF0000000000000), %done7 ], [ %v37, %loop27 ]
  %at31 = phi ptr [ %v1, %done7 ], [ %v38, %loop27 ]
  %i.reducemax_sum_r0_tail.29 = phi i64 [ 0, %done7 ], [ %v39, %loop27 ]
  %v32 = getelementptr i8, ptr %at31, i64 64
  %v33 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %v32, <4 x i1> <i1 true, i1 true, i1 true, i1 false>, <4 x float> zeroinitializer)
  %v34 = fcmp ogt <4 x float> %acc30, %v33
  %v35 = select <4 x i1> %v34, <4 x float> %acc30, <4 x float> %v33
  %v36 = fcmp uno <4 x float> %acc30, %acc30
  %v37 = select <4 x i1> %v36, <4 x float> %acc30, <4 x float> %v35
  %v38 = getelementptr i8, ptr %at31, i64 76
  %v39 = add nuw nsw i64 %i.reducemax_sum_r0_tail.29, 1
  %v40 = icmp slt i64 %v39, 6
  br i1 %v40, label %loop27, label %done28
done28:
  %v41 = getelementptr i8, ptr %v3, i64 64
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v37, ptr align 4 %v41, <4 x i1> <i1 true, i1 true, i1 true, i1 false>)
  %v42 = load <8 x float>, ptr %v3, align 4
  %v43 = fneg <8 x float> %v42
  store <8 x float> %v43, ptr %v5, align 4
  %v44 = getelementptr i8, ptr %v3, i64 32
  %v45 = load <8 x float>, ptr %v44, align 4
  %v46 = fneg <8 x float> %v45
  %v47 = getelementptr i8, ptr %v5, i64 32
  store <8 x float> %v46, ptr %v47, align 4
  %v48 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %v41, <4 x i1> <i1 true, i1 true, i1 true, i1 false>, <4 x float> zeroinitializer)
  %v49 = fneg <4 x float> %v48
  %v50 = getelementptr i8, ptr %v5, i64 64
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v49, ptr align 4 %v50, <4 x i1> <i1 true, i1 true, i1 true, i1 false>)
  ret i32 0
}
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, <4 x i1>)

define i32 @rows(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v7 = alloca [64 x i8], align 64 ; max
  %v50 = alloca [64 x i8], align 64 ; exp
  %v103 = alloca [64 x i8], align 64 ; sum
  %v133 = alloca [64 x i8], align 64 ; share
  br label %loop4
loop4:
  %i.softmax_i0.6 = phi i64 [ 0, %entry ], [ %v145, %loop4 ]
  %v8 = mul i64 %i.softmax_i0.6, 44
  %v9 = getelementptr i8, ptr %v1, i64 %v8
  %v140 = getelementptr i8, ptr %v3, i64 %v8
  store float 0xFFF0000000000000, ptr %v7, align 4
  %v10 = load <8 x float>, ptr %v9, align 4
  %v11 = fcmp ogt <8 x float> splat (float 0xFFF0000000000000), %v10
  %v12 = select <8 x i1> %v11, <8 x float> splat (float 0xFFF0000000000000), <8 x float> %v10
  %v13 = extractelement <8 x float> %v12, i64 0
  %v14 = insertelement <4 x float> poison, float %v13, i64 0
  %v15 = extractelement <8 x float> %v12, i64 1
  %v16 = insertelement <4 x float> %v14, float %v15, i64 1
  %v17 = extractelement <8 x float> %v12, i64 2
  %v18 = insertelement <4 x float> %v16, float %v17, i64 2
  %v19 = getelementptr i8, ptr %v9, i64 32
  %v20 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %v19, <4 x i1> <i1 true, i1 true, i1 true, i1 false>, <4 x float> zeroinitializer)
  %v21 = fcmp ogt <4 x float> %v18, %v20
  %v22 = select <4 x i1> %v21, <4 x float> %v18, <4 x float> %v20
  %v23 = fcmp uno <4 x float> %v18, %v18
  %v24 = select <4 x i1> %v23, <4 x float> %v18, <4 x float> %v22
  %v25 = extractelement <8 x float> %v12, i64 3
  %v26 = extractelement <8 x float> %v12, i64 4
  %v27 = extractelement <8 x float> %v12, i64 5
  %v28 = extractelement <8 x float> %v12, i64 6
  %v29 = extractelement <8 x float> %v12, i64 7
  %v30 = extractelement <4 x float> %v24, i64 0
  %v31 = insertelement <8 x float> poison, float %v30, i64 0
  %v32 = extractelement <4 x float> %v24, i64 1
  %v33 = insertelement <8 x float> %v31, float %v32, i64 1
  %v34 = extractelement <4 x float> %v24, i64 2
  %v35 = insertelement <8 x float> %v33, float %v34, i64 2
  %v36 = insertelement <8 x float> %v35, float %v25, i64 3
  %v37 = insertelement <8 x float> %v36, float %v26, i64 4
  %v38 = insertelement <8 x float> %v37, float %v27, i64 5
  %v39 = insertelement <8 x float> %v38, float %v28, i64 6
  %v40 = insertelement <8 x float> %v39, float %v29, i64 7
  %v41 = fcmp uno <8 x float> %v40, %v40
  %v42 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v41)
  %v43 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v40)
  %v44 = select i1 %v42, float 0x7FF8000000000000, float %v43
  %v45 = load float, ptr %v7, align 4
  %v46 = fcmp ogt float %v45, %v44
  %v47 = select i1 %v46, float %v45, float %v44
  %v48 = fcmp uno float %v45, %v45
  %v49 = select i1 %v48, float %v45, float %v47
  store float %v49, ptr %v7, align 4
  %v51 = load float, ptr %v7, align 4
  %v52 = insertelement <8 x float> poison, float %v51, i64 0
  %v53 = shufflevector <8 x float> %v52, <8 x float> poison, <8 x i32> zeroinitializer
  %v54 = fsub contract <8 x float> %v10, %v53
  %v55 = fcmp olt <8 x float> %v54, splat (float 0xC055D58A00000000)
  %v56 = select <8 x i1> %v55, <8 x float> splat (float 0xC055D58A00000000), <8 x float> %v54
  %v57 = fmul <8 x float> %v56, splat (float 0x3FF7154760000000)
  %v58 = fadd <8 x float> %v57, splat (float 0x4168000000000000)
  %v59 = fsub <8 x float> %v58, splat (float 0x4168000000000000)
  %v60 = bitcast <8 x float> %v58 to <8 x i32>
  %v61 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v59, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %v56)
  %v62 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v59, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %v61)
  %v63 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F2A12A420000000), <8 x float> %v62, <8 x float> splat (float 0x3F56D49200000000))
  %v64 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v63, <8 x float> %v62, <8 x float> splat (float 0x3F81110E00000000))
  %v65 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v64, <8 x float> %v62, <8 x float> splat (float 0x3FA5554E40000000))
  %v66 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v65, <8 x float> %v62, <8 x float> splat (float 0x3FC5555560000000))
  %v67 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v66, <8 x float> %v62, <8 x float> splat (float 0x3FE0000000000000))
  %v68 = fmul <8 x float> %v62, %v62
  %v69 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v68, <8 x float> %v67, <8 x float> %v62)
  %v70 = fadd <8 x float> %v69, splat (float 0x3FF0000000000000)
  %v71 = sub <8 x i32> %v60, splat (i32 1262485504)
  %v72 = add <8 x i32> %v71, splat (i32 127)
  %v73 = shl <8 x i32> %v72, splat (i32 23)
  %v74 = bitcast <8 x i32> %v73 to <8 x float>
  %v75 = fmul <8 x float> %v70, %v74
  %v76 = select <8 x i1> %v55, <8 x float> splat (float 0x0000000000000000), <8 x float> %v75
  store <8 x float> %v76, ptr %v50, align 4
  %v77 = insertelement <4 x float> poison, float %v51, i64 0
  %v78 = shufflevector <4 x float> %v77, <4 x float> poison, <4 x i32> zeroinitializer
  %v79 = fsub contract <4 x float> %v20, %v78
  %v80 = fcmp olt <4 x float> %v79, splat (float 0xC055D58A00000000)
  %v81 = select <4 x i1> %v80, <4 x float> splat (float 0xC055D58A00000000), <4 x float> %v79
  %v82 = fmul <4 x float> %v81, splat (float 0x3FF7154760000000)
  %v83 = fadd <4 x float> %v82, splat (float 0x4168000000000000)
  %v84 = fsub <4 x float> %v83, splat (float 0x4168000000000000)
  %v85 = bitcast <4 x float> %v83 to <4 x i32>
  %v86 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v84, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v81)
  %v87 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v84, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v86)
  %v88 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A12A420000000), <4 x float> %v87, <4 x float> splat (float 0x3F56D49200000000))
  %v89 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v88, <4 x float> %v87, <4 x float> splat (float 0x3F81110E00000000))
  %v90 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v89, <4 x float> %v87, <4 x float> splat (float 0x3FA5554E40000000))
  %v91 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v90, <4 x float> %v87, <4 x float> splat (float 0x3FC5555560000000))
  %v92 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v91, <4 x float> %v87, <4 x float> splat (float 0x3FE0000000000000))
  %v93 = fmul <4 x float> %v87, %v87
  %v94 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v93, <4 x float> %v92, <4 x float> %v87)
  %v95 = fadd <4 x float> %v94, splat (float 0x3FF0000000000000)
  %v96 = sub <4 x i32> %v85, splat (i32 1262485504)
  %v97 = add <4 x i32> %v96, splat (i32 127)
  %v98 = shl <4 x i32> %v97, splat (i32 23)
  %v99 = bitcast <4 x i32> %v98 to <4 x float>
  %v100 = fmul <4 x float> %v95, %v99
  %v101 = select <4 x i1> %v80, <4 x float> splat (float 0x0000000000000000), <4 x float> %v100
  %v102 = getelementptr i8, ptr %v50, i64 32
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v101, ptr align 4 %v102, <4 x i1> <i1 true, i1 true, i1 true, i1 false>)
  store float 0x0000000000000000, ptr %v103, align 4
  %v104 = load <8 x float>, ptr %v50, align 4
  %v105 = fadd contract <8 x float> splat (float 0x0000000000000000), %v104
  %v106 = extractelement <8 x float> %v105, i64 0
  %v107 = insertelement <4 x float> poison, float %v106, i64 0
  %v108 = extractelement <8 x float> %v105, i64 1
  %v109 = insertelement <4 x float> %v107, float %v108, i64 1
  %v110 = extractelement <8 x float> %v105, i64 2
  %v111 = insertelement <4 x float> %v109, float %v110, i64 2
  %v112 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %v102, <4 x i1> <i1 true, i1 true, i1 true, i1 false>, <4 x float> zeroinitializer)
  %v113 = fadd contract <4 x float> %v111, %v112
  %v114 = extractelement <8 x float> %v105, i64 3
  %v115 = extractelement <8 x float> %v105, i64 4
  %v116 = extractelement <8 x float> %v105, i64 5
  %v117 = extractelement <8 x float> %v105, i64 6
  %v118 = extractelement <8 x float> %v105, i64 7
  %v119 = extractelement <4 x float> %v113, i64 0
  %v120 = insertelement <8 x float> poison, float %v119, i64 0
  %v121 = extractelement <4 x float> %v113, i64 1
  %v122 = insertelement <8 x float> %v120, float %v121, i64 1
  %v123 = extractelement <4 x float> %v113, i64 2
  %v124 = insertelement <8 x float> %v122, float %v123, i64 2
  %v125 = insertelement <8 x float> %v124, float %v114, i64 3
  %v126 = insertelement <8 x float> %v125, float %v115, i64 4
  %v127 = insertelement <8 x float> %v126, float %v116, i64 5
  %v128 = insertelement <8 x float> %v127, float %v117, i64 6
  %v129 = insertelement <8 x float> %v128, float %v118, i64 7
  %v130 = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0x8000000000000000, <8 x float> %v129)
  %v131 = load float, ptr %v103, align 4
  %v132 = fadd contract float %v131, %v130
  store float %v132, ptr %v103, align 4
  %v134 = load float, ptr %v103, align 4
  %v135 = fdiv float 0x3FF0000000000000, %v134
  store float %v135, ptr %v133, align 4
  %v136 = load float, ptr %v133, align 4
  %v137 = insertelement <8 x float> poison, float %v136, i64 0
  %v138 = shufflevector <8 x float> %v137, <8 x float> poison, <8 x i32> zeroinitializer
  %v139 = fmul contract <8 x float> %v104, %v138
  store <8 x float> %v139, ptr %v140, align 4
  %v141 = insertelement <4 x float> poison, float %v136, i64 0
  %v142 = shufflevector <4 x float> %v141, <4 x float> poison, <4 x i32> zeroinitializer
  %v143 = fmul contract <4 x float> %v112, %v142
  %v144 = getelementptr i8, ptr %v140, i64 32
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v143, ptr align 4 %v144, <4 x i1> <i1 true, i1 true, i1 true, i1 false>)
  %v145 = add nuw nsw i64 %i.softmax_i0.6, 1
  %v146 = icmp slt i64 %v145, 2
  br i1 %v146, label %loop4, label %done5
done5:
  ret i32 0
}
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)
declare float @llvm.vector.reduce.fmax.v8f32(<8 x float>)
declare i1 @llvm.vector.reduce.or.v8i1(<8 x i1>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, <4 x i1>)

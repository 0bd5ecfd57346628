define i32 @sketch_phases_tile_registers(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %v7, i64 0
  br label %loop9
loop9:
  %i.conv_transpose_sum_ox_tap.11 = phi i64 [ 0, %entry ], [ %v119, %done13 ]
  %v30 = add i64 %i.conv_transpose_sum_ox_tap.11, 1
  %v31 = udiv i64 %v30, 2
  %v32 = add i64 %v31, 1
  %v39 = mul i64 %v31, 4
  %v40 = getelementptr i8, ptr %v1, i64 %v39
  %v44 = urem i64 %v30, 2
  %v45 = mul i64 %v44, 4
  %v46 = getelementptr i8, ptr %v3, i64 %v45
  %v112 = mul i64 %i.conv_transpose_sum_ox_tap.11, 36
  %v113 = getelementptr i8, ptr %v8, i64 %v112
  br label %loop12
loop12:
  %acc15 = phi <8 x float> [ splat (float 0x0000000000000000), %loop9 ], [ %v65, %done22 ]
  %acc16 = phi float [ 0x0000000000000000, %loop9 ], [ %v73, %done22 ]
  %acc17 = phi <8 x float> [ splat (float 0x0000000000000000), %loop9 ], [ %v86, %done22 ]
  %acc18 = phi float [ 0x0000000000000000, %loop9 ], [ %v88, %done22 ]
  %acc19 = phi <8 x float> [ splat (float 0x0000000000000000), %loop9 ], [ %v101, %done22 ]
  %acc20 = phi float [ 0x0000000000000000, %loop9 ], [ %v103, %done22 ]
  %at41 = phi ptr [ %v40, %loop9 ], [ %v108, %done22 ]
  %at47 = phi ptr [ %v46, %loop9 ], [ %v109, %done22 ]
  %i.conv_transpose_sum_sum_ic.14 = phi i64 [ 0, %loop9 ], [ %v110, %done22 ]
  br label %loop21
loop21:
  %acc24 = phi <8 x float> [ %acc15, %loop12 ], [ %v65, %loop21 ]
  %acc25 = phi float [ %acc16, %loop12 ], [ %v73, %loop21 ]
  %acc26 = phi <8 x float> [ %acc17, %loop12 ], [ %v86, %loop21 ]
  %acc27 = phi float [ %acc18, %loop12 ], [ %v88, %loop21 ]
  %acc28 = phi <8 x float> [ %acc19, %loop12 ], [ %v101, %loop21 ]
  %acc29 = phi float [ %acc20, %loop12 ], [ %v103, %loop21 ]
  %at42 = phi ptr [ %at41, %loop12 ], [ %v104, %loop21 ]
  %at48 = phi ptr [ %at47, %loop12 ], [ %v105, %loop21 ]
  %i.conv_transpose_sum_sum_kw_step.23 = phi i64 [ 0, %loop12 ], [ %v106, %loop21 ]
  %v66 = add i64 %i.conv_transpose_sum_sum_kw_step.23, 1
  %v33 = insertelement <8 x i64> poison, i64 %v32, i64 0
  %v34 = shufflevector <8 x i64> %v33, <8 x i64> poison, <8 x i32> zeroinitializer
  %v35 = add <8 x i64> %v34, <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>
  %v36 = insertelement <8 x i64> poison, i64 %i.conv_transpose_sum_sum_kw_step.23, i64 0
  %v37 = shufflevector <8 x i64> %v36, <8 x i64> poison, <8 x i32> zeroinitializer
  %v38 = icmp slt <8 x i64> %v37, %v35
  %v43 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %at42, <8 x i1> %v38, <8 x float> zeroinitializer)
  %v49 = bitcast <8 x i1> %v38 to i8
  %v50 = icmp ne i8 %v49, 0
  %v51 = select i1 %v50, ptr %at48, ptr %v3
  %v52 = load float, ptr %v51, align 4
  %v53 = insertelement <8 x float> poison, float %v52, i64 0
  %v54 = shufflevector <8 x float> %v53, <8 x float> poison, <8 x i32> zeroinitializer
  %v55 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v43, <8 x float> %v54, <8 x float> %acc24)
  %v56 = select <8 x i1> %v38, <8 x float> %v55, <8 x float> %acc24
  %v57 = xor <8 x i1> %v38, splat (i1 true)
  %v58 = bitcast <8 x i1> %v57 to i8
  %v59 = icmp ne i8 %v58, 0
  %v60 = select i1 %v59, ptr %at48, ptr %v3
  %v61 = load float, ptr %v60, align 4
  %v62 = insertelement <8 x float> poison, float %v61, i64 0
  %v63 = shufflevector <8 x float> %v62, <8 x float> poison, <8 x i32> zeroinitializer
  %v64 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x0000000000000000), <8 x float> %v63, <8 x float> %v56)
  %v65 = select <8 x i1> %v57, <8 x float> %v64, <8 x float> %v56
  %v67 = icmp slt i64 %v31, %v66
  %v68 = getelementptr i8, ptr %at42, i64 32
  %v69 = select i1 %v67, ptr %v68, ptr %v1
  %v70 = load float, ptr %v69, align 4
  %v71 = select i1 %v67, float %v70, float 0x0000000000000000
  %v72 = load float, ptr %at48, align 4
  %v73 = call float @llvm.fmuladd.f32(float %v71, float %v72, float %acc25)
  %v74 = getelementptr i8, ptr %at48, i64 16
  %v75 = select i1 %v50, ptr %v74, ptr %v3
  %v76 = load float, ptr %v75, align 4
  %v77 = insertelement <8 x float> poison, float %v76, i64 0
  %v78 = shufflevector <8 x float> %v77, <8 x float> poison, <8 x i32> zeroinitializer
  %v79 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v43, <8 x float> %v78, <8 x float> %acc26)
  %v80 = select <8 x i1> %v38, <8 x float> %v79, <8 x float> %acc26
  %v81 = select i1 %v59, ptr %v74, ptr %v3
  %v82 = load float, ptr %v81, align 4
  %v83 = insertelement <8 x float> poison, float %v82, i64 0
  %v84 = shufflevector <8 x float> %v83, <8 x float> poison, <8 x i32> zeroinitializer
  %v85 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x0000000000000000), <8 x float> %v84, <8 x float> %v80)
  %v86 = select <8 x i1> %v57, <8 x float> %v85, <8 x float> %v80
  %v87 = load float, ptr %v74, align 4
  %v88 = call float @llvm.fmuladd.f32(float %v71, float %v87, float %acc27)
  %v89 = getelementptr i8, ptr %at48, i64 32
  %v90 = select i1 %v50, ptr %v89, ptr %v3
  %v91 = load float, ptr %v90, align 4
  %v92 = insertelement <8 x float> poison, float %v91, i64 0
  %v93 = shufflevector <8 x float> %v92, <8 x float> poison, <8 x i32> zeroinitializer
  %v94 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v43, <8 x float> %v93, <8 x float> %acc28)
  %v95 = select <8 x i1> %v38, <8 x float> %v94, <8 x float> %acc28
  %v96 = select i1 %v59, ptr %v89, ptr %v3
  %v97 = load float, ptr %v96, align 4
  %v98 = insertelement <8 x float> poison, float %v97, i64 0
  %v99 = shufflevector <8 x float> %v98, <8 x float> poison, <8 x i32> zeroinitializer
  %v100 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x0000000000000000), <8 x float> %v99, <8 x float> %v95)
  %v101 = select <8 x i1> %v57, <8 x float> %v100, <8 x float> %v95
  %v102 = load float, ptr %v89, align 4
  %v103 = call float @llvm.fmuladd.f32(float %v71, float %v102, float %acc29)
  %v104 = getelementptr i8, ptr %at42, i64 -4
  %v105 = getelementptr i8, ptr %at48, i64 8
  %v106 = add nuw nsw i64 %i.conv_transpose_sum_sum_kw_step.23, 1
  %v107 = icmp slt i64 %v106, 2
  br i1 %v107, label %loop21, label %done22
done22:
  %v108 = getelementptr i8, ptr %at41, i64 36
  %v109 = getelementptr i8, ptr %at47, i64 48
  %v110 = add nuw nsw i64 %i.conv_transpose_sum_sum_ic.14, 1
  %v111 = icmp slt i64 %v110, 2
  br i1 %v111, label %loop12, label %done13
done13:
  store <8 x float> %v65, ptr %v113, align 4
  %v114 = getelementptr i8, ptr %v113, i64 32
  store float %v73, ptr %v114, align 4
  %v115 = getelementptr i8, ptr %v113, i64 72
  store <8 x float> %v86, ptr %v115, align 4
  %v116 = getelementptr i8, ptr %v113, i64 104
  store float %v88, ptr %v116, align 4
  %v117 = getelementptr i8, ptr %v113, i64 144
  store <8 x float> %v101, ptr %v117, align 4
  %v118 = getelementptr i8, ptr %v113, i64 176
  store float %v103, ptr %v118, align 4
  %v119 = add nuw nsw i64 %i.conv_transpose_sum_ox_tap.11, 1
  %v120 = icmp slt i64 %v119, 2
  br i1 %v120, label %loop9, label %done10
done10:
  br label %loop121
loop121:
  %i.conv_transpose_oc.123 = phi i64 [ 0, %done10 ], [ %v166, %done125 ]
  %v127 = mul i64 %i.conv_transpose_oc.123, 72
  %v128 = getelementptr i8, ptr %v8, i64 %v127
  %v154 = getelementptr i8, ptr %v5, i64 %v127
  br label %loop124
loop124:
  %i.conv_transpose_ox_o.126 = phi i64 [ 0, %loop121 ], [ %v157, %loop124 ]
  %v129 = mul i64 %i.conv_transpose_ox_o.126, 16
  %v130 = getelementptr i8, ptr %v128, i64 %v129
  %v155 = mul i64 %i.conv_transpose_ox_o.126, 32
  %v156 = getelementptr i8, ptr %v154, i64 %v155
  %v131 = getelementptr i8, ptr %v130, i64 36
  %v132 = getelementptr i8, ptr %v130, i64 4
  %v133 = getelementptr i8, ptr %v130, i64 40
  %v134 = getelementptr i8, ptr %v130, i64 8
  %v135 = getelementptr i8, ptr %v130, i64 44
  %v136 = getelementptr i8, ptr %v130, i64 12
  %v137 = getelementptr i8, ptr %v130, i64 48
  %v138 = load float, ptr %v130, align 4
  %v139 = insertelement <8 x float> poison, float %v138, i64 0
  %v140 = load float, ptr %v131, align 4
  %v141 = insertelement <8 x float> %v139, float %v140, i64 1
  %v142 = load float, ptr %v132, align 4
  %v143 = insertelement <8 x float> %v141, float %v142, i64 2
  %v144 = load float, ptr %v133, align 4
  %v145 = insertelement <8 x float> %v143, float %v144, i64 3
  %v146 = load float, ptr %v134, align 4
  %v147 = insertelement <8 x float> %v145, float %v146, i64 4
  %v148 = load float, ptr %v135, align 4
  %v149 = insertelement <8 x float> %v147, float %v148, i64 5
  %v150 = load float, ptr %v136, align 4
  %v151 = insertelement <8 x float> %v149, float %v150, i64 6
  %v152 = load float, ptr %v137, align 4
  %v153 = insertelement <8 x float> %v151, float %v152, i64 7
  store <8 x float> %v153, ptr %v156, align 4
  %v157 = add nuw nsw i64 %i.conv_transpose_ox_o.126, 1
  %v158 = icmp slt i64 %v157, 2
  br i1 %v158, label %loop124, label %done125
done125:
  %v159 = getelementptr i8, ptr %v128, i64 32
  %v160 = getelementptr i8, ptr %v128, i64 68
  %v161 = load float, ptr %v159, align 4
  %v162 = insertelement <2 x float> poison, float %v161, i64 0
  %v163 = load float, ptr %v160, align 4
  %v164 = insertelement <2 x float> %v162, float %v163, i64 1
  %v165 = getelementptr i8, ptr %v154, i64 64
  store <2 x float> %v164, ptr %v165, align 4
  %v166 = add nuw nsw i64 %i.conv_transpose_oc.123, 1
  %v167 = icmp slt i64 %v166, 3
  br i1 %v167, label %loop121, label %done122
done122:
  ret i32 0
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare float @llvm.fmuladd.f32(float, float, float)

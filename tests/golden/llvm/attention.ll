define i32 @attention(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = alloca [64 x i8], align 64 ; matmul
  %v80 = alloca [64 x i8], align 64 ; max
  %v108 = alloca [64 x i8], align 64 ; exp
  %v146 = alloca [64 x i8], align 64 ; sum
  %v168 = alloca [64 x i8], align 64 ; share
  %v9 = load float, ptr %v1, align 4
  %v10 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v3, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v11 = insertelement <8 x float> poison, float %v9, i64 0
  %v12 = shufflevector <8 x float> %v11, <8 x float> poison, <8 x i32> zeroinitializer
  %v13 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v12, <8 x float> %v10, <8 x float> splat (float 0x0000000000000000))
  %v14 = getelementptr i8, ptr %v1, i64 24
  %v15 = load float, ptr %v14, align 4
  %v16 = insertelement <8 x float> poison, float %v15, i64 0
  %v17 = shufflevector <8 x float> %v16, <8 x float> poison, <8 x i32> zeroinitializer
  %v18 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v17, <8 x float> %v10, <8 x float> splat (float 0x0000000000000000))
  %v19 = getelementptr i8, ptr %v1, i64 4
  %v20 = load float, ptr %v19, align 4
  %v21 = getelementptr i8, ptr %v3, i64 20
  %v22 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v21, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v23 = insertelement <8 x float> poison, float %v20, i64 0
  %v24 = shufflevector <8 x float> %v23, <8 x float> poison, <8 x i32> zeroinitializer
  %v25 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v24, <8 x float> %v22, <8 x float> %v13)
  %v26 = getelementptr i8, ptr %v1, i64 28
  %v27 = load float, ptr %v26, align 4
  %v28 = insertelement <8 x float> poison, float %v27, i64 0
  %v29 = shufflevector <8 x float> %v28, <8 x float> poison, <8 x i32> zeroinitializer
  %v30 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v29, <8 x float> %v22, <8 x float> %v18)
  %v31 = getelementptr i8, ptr %v1, i64 8
  %v32 = load float, ptr %v31, align 4
  %v33 = getelementptr i8, ptr %v3, i64 40
  %v34 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v33, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v35 = insertelement <8 x float> poison, float %v32, i64 0
  %v36 = shufflevector <8 x float> %v35, <8 x float> poison, <8 x i32> zeroinitializer
  %v37 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v36, <8 x float> %v34, <8 x float> %v25)
  %v38 = getelementptr i8, ptr %v1, i64 32
  %v39 = load float, ptr %v38, align 4
  %v40 = insertelement <8 x float> poison, float %v39, i64 0
  %v41 = shufflevector <8 x float> %v40, <8 x float> poison, <8 x i32> zeroinitializer
  %v42 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v41, <8 x float> %v34, <8 x float> %v30)
  %v43 = getelementptr i8, ptr %v1, i64 12
  %v44 = load float, ptr %v43, align 4
  %v45 = getelementptr i8, ptr %v3, i64 60
  %v46 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v45, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v47 = insertelement <8 x float> poison, float %v44, i64 0
  %v48 = shufflevector <8 x float> %v47, <8 x float> poison, <8 x i32> zeroinitializer
  %v49 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v48, <8 x float> %v46, <8 x float> %v37)
  %v50 = getelementptr i8, ptr %v1, i64 36
  %v51 = load float, ptr %v50, align 4
  %v52 = insertelement <8 x float> poison, float %v51, i64 0
  %v53 = shufflevector <8 x float> %v52, <8 x float> poison, <8 x i32> zeroinitializer
  %v54 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v53, <8 x float> %v46, <8 x float> %v42)
  %v55 = getelementptr i8, ptr %v1, i64 16
  %v56 = load float, ptr %v55, align 4
  fence syncscope("singlethread") acq_rel
  %v57 = getelementptr i8, ptr %v3, i64 80
  %v58 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v57, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v59 = insertelement <8 x float> poison, float %v56, i64 0
  %v60 = shufflevector <8 x float> %v59, <8 x float> poison, <8 x i32> zeroinitializer
  %v61 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v60, <8 x float> %v58, <8 x float> %v49)
  %v62 = getelementptr i8, ptr %v1, i64 40
  %v63 = load float, ptr %v62, align 4
  %v64 = insertelement <8 x float> poison, float %v63, i64 0
  %v65 = shufflevector <8 x float> %v64, <8 x float> poison, <8 x i32> zeroinitializer
  %v66 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v65, <8 x float> %v58, <8 x float> %v54)
  %v67 = getelementptr i8, ptr %v1, i64 20
  %v68 = load float, ptr %v67, align 4
  fence syncscope("singlethread") acq_rel
  %v69 = getelementptr i8, ptr %v3, i64 100
  %v70 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v69, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v71 = insertelement <8 x float> poison, float %v68, i64 0
  %v72 = shufflevector <8 x float> %v71, <8 x float> poison, <8 x i32> zeroinitializer
  %v73 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v72, <8 x float> %v70, <8 x float> %v61)
  %v74 = getelementptr i8, ptr %v1, i64 44
  %v75 = load float, ptr %v74, align 4
  %v76 = insertelement <8 x float> poison, float %v75, i64 0
  %v77 = shufflevector <8 x float> %v76, <8 x float> poison, <8 x i32> zeroinitializer
  %v78 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v77, <8 x float> %v70, <8 x float> %v66)
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v73, ptr align 4 %v8, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>)
  %v79 = getelementptr i8, ptr %v8, i64 32
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v78, ptr align 4 %v79, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>)
  br label %loop81
loop81:
  %i.max_init_i0.83 = phi i64 [ 0, %entry ], [ %v86, %loop81 ]
  %v84 = mul i64 %i.max_init_i0.83, 4
  %v85 = getelementptr i8, ptr %v80, i64 %v84
  store float 0xFFF0000000000000, ptr %v85, align 4
  %v86 = add nuw nsw i64 %i.max_init_i0.83, 1
  %v87 = icmp slt i64 %v86, 2
  br i1 %v87, label %loop81, label %done82
done82:
  br label %loop88
loop88:
  %i.max_i0.90 = phi i64 [ 0, %done82 ], [ %v106, %loop88 ]
  %v91 = mul i64 %i.max_i0.90, 32
  %v92 = getelementptr i8, ptr %v8, i64 %v91
  %v99 = mul i64 %i.max_i0.90, 4
  %v100 = getelementptr i8, ptr %v80, i64 %v99
  %v93 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v92, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v94 = select <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> %v93, <8 x float> splat (float 0xFFF0000000000000)
  %v95 = fcmp uno <8 x float> %v94, %v94
  %v96 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v95)
  %v97 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v94)
  %v98 = select i1 %v96, float 0x7FF8000000000000, float %v97
  %v101 = load float, ptr %v100, align 4
  %v102 = fcmp ogt float %v101, %v98
  %v103 = select i1 %v102, float %v101, float %v98
  %v104 = fcmp uno float %v101, %v101
  %v105 = select i1 %v104, float %v101, float %v103
  store float %v105, ptr %v100, align 4
  %v106 = add nuw nsw i64 %i.max_i0.90, 1
  %v107 = icmp slt i64 %v106, 2
  br i1 %v107, label %loop88, label %done89
done89:
  br label %loop109
loop109:
  %i.exp_i0.111 = phi i64 [ 0, %done89 ], [ %v144, %loop109 ]
  %v112 = mul i64 %i.exp_i0.111, 32
  %v113 = getelementptr i8, ptr %v8, i64 %v112
  %v115 = mul i64 %i.exp_i0.111, 4
  %v116 = getelementptr i8, ptr %v80, i64 %v115
  %v143 = getelementptr i8, ptr %v108, i64 %v112
  %v114 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v113, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v117 = load float, ptr %v116, align 4
  %v118 = insertelement <8 x float> poison, float %v117, i64 0
  %v119 = shufflevector <8 x float> %v118, <8 x float> poison, <8 x i32> zeroinitializer
  %v120 = fsub contract <8 x float> %v114, %v119
  %v121 = fcmp olt <8 x float> %v120, splat (float 0xC055D58A00000000)
  %v122 = select <8 x i1> %v121, <8 x float> splat (float 0xC055D58A00000000), <8 x float> %v120
  %v123 = fmul <8 x float> %v122, splat (float 0x3FF7154760000000)
  %v124 = fadd <8 x float> %v123, splat (float 0x4168000000000000)
  %v125 = fsub <8 x float> %v124, splat (float 0x4168000000000000)
  %v126 = bitcast <8 x float> %v124 to <8 x i32>
  %v127 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v125, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %v122)
  %v128 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v125, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %v127)
  %v129 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> splat (float 0x3F2A12A420000000), <8 x float> %v128, <8 x float> splat (float 0x3F56D49200000000))
  %v130 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v129, <8 x float> %v128, <8 x float> splat (float 0x3F81110E00000000))
  %v131 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v130, <8 x float> %v128, <8 x float> splat (float 0x3FA5554E40000000))
  %v132 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v131, <8 x float> %v128, <8 x float> splat (float 0x3FC5555560000000))
  %v133 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v132, <8 x float> %v128, <8 x float> splat (float 0x3FE0000000000000))
  %v134 = fmul <8 x float> %v128, %v128
  %v135 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v134, <8 x float> %v133, <8 x float> %v128)
  %v136 = fadd <8 x float> %v135, splat (float 0x3FF0000000000000)
  %v137 = sub <8 x i32> %v126, splat (i32 1262485504)
  %v138 = add <8 x i32> %v137, splat (i32 127)
  %v139 = shl <8 x i32> %v138, splat (i32 23)
  %v140 = bitcast <8 x i32> %v139 to <8 x float>
  %v141 = fmul <8 x float> %v136, %v140
  %v142 = select <8 x i1> %v121, <8 x float> splat (float 0x0000000000000000), <8 x float> %v141
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v142, ptr align 4 %v143, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>)
  %v144 = add nuw nsw i64 %i.exp_i0.111, 1
  %v145 = icmp slt i64 %v144, 2
  br i1 %v145, label %loop109, label %done110
done110:
  br label %loop147
loop147:
  %i.sum_init_i0.149 = phi i64 [ 0, %done110 ], [ %v152, %loop147 ]
  %v150 = mul i64 %i.sum_init_i0.149, 4
  %v151 = getelementptr i8, ptr %v146, i64 %v150
  store float 0x0000000000000000, ptr %v151, align 4
  %v152 = add nuw nsw i64 %i.sum_init_i0.149, 1
  %v153 = icmp slt i64 %v152, 2
  br i1 %v153, label %loop147, label %done148
done148:
  br label %loop154
loop154:
  %i.sum_i0.156 = phi i64 [ 0, %done148 ], [ %v166, %loop154 ]
  %v157 = mul i64 %i.sum_i0.156, 32
  %v158 = getelementptr i8, ptr %v108, i64 %v157
  %v162 = mul i64 %i.sum_i0.156, 4
  %v163 = getelementptr i8, ptr %v146, i64 %v162
  %v159 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v158, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v160 = select <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> %v159, <8 x float> splat (float 0x0000000000000000)
  %v161 = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0x8000000000000000, <8 x float> %v160)
  %v164 = load float, ptr %v163, align 4
  %v165 = fadd contract float %v164, %v161
  store float %v165, ptr %v163, align 4
  %v166 = add nuw nsw i64 %i.sum_i0.156, 1
  %v167 = icmp slt i64 %v166, 2
  br i1 %v167, label %loop154, label %done155
done155:
  %v169 = load <2 x float>, ptr %v146, align 4
  %v170 = fdiv <2 x float> splat (float 0x3FF0000000000000), %v169
  store <2 x float> %v170, ptr %v168, align 4
  %v171 = load float, ptr %v108, align 4
  %v172 = load <8 x float>, ptr %v5, align 4
  %v173 = insertelement <8 x float> poison, float %v171, i64 0
  %v174 = shufflevector <8 x float> %v173, <8 x float> poison, <8 x i32> zeroinitializer
  %v175 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v174, <8 x float> %v172, <8 x float> splat (float 0x0000000000000000))
  %v176 = getelementptr i8, ptr %v108, i64 32
  %v177 = load float, ptr %v176, align 4
  %v178 = insertelement <8 x float> poison, float %v177, i64 0
  %v179 = shufflevector <8 x float> %v178, <8 x float> poison, <8 x i32> zeroinitializer
  %v180 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v179, <8 x float> %v172, <8 x float> splat (float 0x0000000000000000))
  %v181 = getelementptr i8, ptr %v108, i64 4
  %v182 = load float, ptr %v181, align 4
  %v183 = getelementptr i8, ptr %v5, i64 32
  %v184 = load <8 x float>, ptr %v183, align 4
  %v185 = insertelement <8 x float> poison, float %v182, i64 0
  %v186 = shufflevector <8 x float> %v185, <8 x float> poison, <8 x i32> zeroinitializer
  %v187 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v186, <8 x float> %v184, <8 x float> %v175)
  %v188 = getelementptr i8, ptr %v108, i64 36
  %v189 = load float, ptr %v188, align 4
  %v190 = insertelement <8 x float> poison, float %v189, i64 0
  %v191 = shufflevector <8 x float> %v190, <8 x float> poison, <8 x i32> zeroinitializer
  %v192 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v191, <8 x float> %v184, <8 x float> %v180)
  %v193 = getelementptr i8, ptr %v108, i64 8
  %v194 = load float, ptr %v193, align 4
  %v195 = getelementptr i8, ptr %v5, i64 64
  %v196 = load <8 x float>, ptr %v195, align 4
  %v197 = insertelement <8 x float> poison, float %v194, i64 0
  %v198 = shufflevector <8 x float> %v197, <8 x float> poison, <8 x i32> zeroinitializer
  %v199 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v198, <8 x float> %v196, <8 x float> %v187)
  %v200 = getelementptr i8, ptr %v108, i64 40
  %v201 = load float, ptr %v200, align 4
  %v202 = insertelement <8 x float> poison, float %v201, i64 0
  %v203 = shufflevector <8 x float> %v202, <8 x float> poison, <8 x i32> zeroinitializer
  %v204 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v203, <8 x float> %v196, <8 x float> %v192)
  %v205 = getelementptr i8, ptr %v108, i64 12
  %v206 = load float, ptr %v205, align 4
  %v207 = getelementptr i8, ptr %v5, i64 96
  %v208 = load <8 x float>, ptr %v207, align 4
  %v209 = insertelement <8 x float> poison, float %v206, i64 0
  %v210 = shufflevector <8 x float> %v209, <8 x float> poison, <8 x i32> zeroinitializer
  %v211 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v210, <8 x float> %v208, <8 x float> %v199)
  %v212 = getelementptr i8, ptr %v108, i64 44
  %v213 = load float, ptr %v212, align 4
  %v214 = insertelement <8 x float> poison, float %v213, i64 0
  %v215 = shufflevector <8 x float> %v214, <8 x float> poison, <8 x i32> zeroinitializer
  %v216 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v215, <8 x float> %v208, <8 x float> %v204)
  %v217 = getelementptr i8, ptr %v108, i64 16
  %v218 = load float, ptr %v217, align 4
  fence syncscope("singlethread") acq_rel
  %v219 = getelementptr i8, ptr %v5, i64 128
  %v220 = load <8 x float>, ptr %v219, align 4
  %v221 = insertelement <8 x float> poison, float %v218, i64 0
  %v222 = shufflevector <8 x float> %v221, <8 x float> poison, <8 x i32> zeroinitializer
  %v223 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v222, <8 x float> %v220, <8 x float> %v211)
  %v224 = getelementptr i8, ptr %v108, i64 48
  %v225 = load float, ptr %v224, align 4
  %v226 = insertelement <8 x float> poison, float %v225, i64 0
  %v227 = shufflevector <8 x float> %v226, <8 x float> poison, <8 x i32> zeroinitializer
  %v228 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v227, <8 x float> %v220, <8 x float> %v216)
  %v229 = load float, ptr %v168, align 4
  %v230 = insertelement <8 x float> poison, float %v229, i64 0
  %v231 = shufflevector <8 x float> %v230, <8 x float> poison, <8 x i32> zeroinitializer
  %v232 = fmul contract <8 x float> %v223, %v231
  store <8 x float> %v232, ptr %v7, align 4
  %v233 = getelementptr i8, ptr %v168, i64 4
  %v234 = load float, ptr %v233, align 4
  %v235 = insertelement <8 x float> poison, float %v234, i64 0
  %v236 = shufflevector <8 x float> %v235, <8 x float> poison, <8 x i32> zeroinitializer
  %v237 = fmul contract <8 x float> %v228, %v236
  %v238 = getelementptr i8, ptr %v7, i64 32
  store <8 x float> %v237, ptr %v238, align 4
  ret i32 0
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)
declare float @llvm.vector.reduce.fmax.v8f32(<8 x float>)
declare i1 @llvm.vector.reduce.or.v8i1(<8 x i1>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, <8 x i1>)
